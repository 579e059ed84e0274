"""/api/v1/failures: looking at failed messages, and how they did. Translates only; the desk decides."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    MOMENT,
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    api_route,
    boolean,
    integer,
    list_of,
    map_of,
    record,
)
from holdfast.api.http.errors import paging
from holdfast.api.http.failure_schemas import EXAMPLE, FAILURE, FAILURE_ID, WHOLE_FAILURE
from holdfast.api.http.report_schemas import REPORT
from holdfast.api.http.requests import query
from holdfast.api.http.selecting import SELECTION_PARAMETERS, selection_pairs
from holdfast.api.http.sight import REVEAL, redaction_for
from holdfast.deadletter.browsing import COUNTED_AT_MOST, Browsing
from holdfast.deadletter.presentation import failure_to_json, found_to_json, report_to_json
from holdfast.deadletter.reporting import DEFAULT_SINCE, Reporting
from holdfast.deadletter.sight import Sight
from holdfast.errors import NotFound
from holdfast.model.failed_message import FailureStatus

_COUNTS = map_of(integer(), "How many are stored with each status")


def routes(browsing: Browsing, reporting: Reporting, sight: Sight) -> list[ApiRoute]:
    async def list_failures(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        selection = browsing.selection_from_query(selection_pairs(request))
        redaction.check_selection(selection)
        page = await browsing.list_failures(selection, *paging(request))
        count = await browsing.count(selection)
        return JSONResponse(
            {
                "failures": [
                    failure_to_json(failure, False, redaction, await browsing.edits(failure) if redaction else ())
                    for failure in page.failures
                ],
                "nextPageToken": page.next_page_token,
                "count": count.number,
                "countIsExact": count.is_exact,
                "counts": _counts_json(await browsing.counts()),
            }
        )

    async def get_counts(request: Request) -> Response:
        query(request, ())
        by_status, by_reason = await browsing.counts(), await browsing.counts_by_reason()
        return JSONResponse(
            {
                "byStatus": _counts_json(by_status),
                "byReason": {reason: _counts_json(counts) for reason, counts in by_reason.items()},
            }
        )

    async def get_failure(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        return JSONResponse(found_to_json(await browsing.find(failure_id(request)), redaction))

    async def get_statistics(request: Request) -> Response:
        since = query(request, ("since",)).get("since", DEFAULT_SINCE)
        return JSONResponse(report_to_json(await reporting.report(since)))

    return [
        api_route("GET", "/api/v1/failures", list_failures, _LIST),
        api_route("GET", "/api/v1/failures/stats", get_statistics, _STATISTICS),
        api_route("GET", "/api/v1/failures/counts", get_counts, _COUNT),
        api_route("GET", "/api/v1/failures/{id}", get_failure, _GET),
    ]


def _counts_json(counts: Mapping[FailureStatus, int]) -> dict[str, int]:
    return {str(status): counts.get(status, 0) for status in FailureStatus}


def failure_id(request: Request) -> int:
    """Anything that cannot be an id names no failure. The length keeps int() from meeting a huge number."""
    text = str(request.path_params["id"])
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    raise NotFound(f"there is no failure {text[:64]!r}")


# What they say of themselves.

_LIST = Operation(
    "Failed messages, newest first",
    "All that is given must hold. Pages go on right after the last one, whatever is recorded in between.",
    tag="failures",
    parameters=(*SELECTION_PARAMETERS, *PAGING, REVEAL),
    answer=Answer(
        record(
            {
                "failures": list_of(FAILURE),
                "nextPageToken": NEXT_PAGE_TOKEN,
                "count": integer(f"How many are meant, {COUNTED_AT_MOST} at most"),
                "countIsExact": boolean("False when there are more than that"),
                "counts": _COUNTS,
            },
            title="FailurePage",
        ),
        "A page",
        example={
            "failures": [EXAMPLE],
            "nextPageToken": "",
            "count": 1,
            "countIsExact": True,
            "counts": {"queued_for_retry": 0, "permanent_failure": 1, "retry_success": 0, "replayed": 0},
        },
    ),
    errors=(400, 403),
)

_GET = Operation(
    "One failed message whole, with its payload",
    tag="failures",
    parameters=(FAILURE_ID, REVEAL),
    answer=Answer(
        WHOLE_FAILURE,
        "The failure",
        example=EXAMPLE
        | {"data": "eyJ0cyI6MX0=", "text": '{"ts":1}', "json": {"ts": 1}, "revisions": [], "lineage": [42]},
    ),
    errors=(403, 404),
)

_COUNT = Operation(
    "How many failures are stored, by status and by reason",
    tag="failures",
    answer=Answer(record({"byStatus": _COUNTS, "byReason": map_of(_COUNTS)}, title="Counts"), "The counts"),
    errors=(400,),
)

_STATISTICS = Operation(
    "How failures did since a time",
    tag="failures",
    parameters=(
        Parameter(
            "since",
            f"RFC 3339, or so long ago, such as `24h`; {DEFAULT_SINCE} where it is absent",
            MOMENT,
            example="24h",
        ),
    ),
    answer=Answer(REPORT, "The report"),
    errors=(400,),
)
