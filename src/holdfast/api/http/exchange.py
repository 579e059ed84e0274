"""/api/v1/failures:export and :import: failed messages as lines of JSON. Both stream."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.api.http.describing import (
    ACTOR,
    Answer,
    ApiRoute,
    Body,
    Operation,
    anything,
    api_route,
    integer,
    list_of,
    record,
    text,
)
from holdfast.api.http.requests import actor_of, check_origin
from holdfast.api.http.selecting import SELECTION_PARAMETERS, selection_pairs
from holdfast.api.http.sight import REVEAL, redaction_for
from holdfast.api.http.streaming import NDJSON, answer_of
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.exchange.service import MOST_ERRORS, Exchange, Imported
from holdfast.deadletter.sight import Sight


def routes(browsing: Browsing, exchange: Exchange, sight: Sight) -> list[ApiRoute]:
    async def export_failures(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        selection = browsing.selection_from_query(selection_pairs(request))
        redaction.check_selection(selection)
        lines = exchange.export(selection, redaction, actor_of(request))
        headers = {"Content-Disposition": 'attachment; filename="failures.ndjson"'}
        return StreamingResponse(lines, media_type=NDJSON, headers=headers)

    async def import_failures(request: Request) -> Response:
        check_origin(request)
        return await answer_of(request, exchange.take_in(request.stream(), actor_of(request)), _imported_to_json)

    return [
        api_route("GET", "/api/v1/failures:export", export_failures, _EXPORT),
        api_route("POST", "/api/v1/failures:import", import_failures, _IMPORT),
    ]


def _imported_to_json(imported: Imported) -> dict[str, Any]:
    return {
        "lines": imported.lines,
        "new": imported.new,
        "known": imported.known,
        "refused": imported.refused,
        "errors": [{"line": error.line, "error": error.error} for error in imported.errors],
    }


# What they say of themselves.

_LINE = anything("A failed message, as the API shows it, with its payload in base64 and its revisions")

_EXPORT = Operation(
    "Failed messages as lines of JSON",
    "By id. A message of which something is redacted is marked so, and cannot be imported.",
    tag="failures",
    parameters=(*SELECTION_PARAMETERS, ACTOR, REVEAL),
    answer=Answer(_LINE, "One line for each", content_type=NDJSON),
    errors=(400, 403),
)

_IMPORT = Operation(
    "Take in what was exported",
    "Statuses, times, lineage, revisions and legal hold are kept; ids are new. What is there already stays as it is. A "
    "line that is wrong is told by its number, and all others are imported.",
    tag="failures",
    parameters=(ACTOR,),
    body=Body(_LINE, content_type=NDJSON, required=False),
    answer=Answer(
        record(
            {
                "lines": integer(),
                "new": integer(),
                "known": integer("They were there already"),
                "refused": integer(),
                "errors": list_of(
                    record({"line": integer("The first is 1"), "error": text()}), f"The first {MOST_ERRORS} of them"
                ),
            }
        ),
        "What became of them",
    ),
    errors=(400,),
)
