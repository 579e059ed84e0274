"""POST /api/v1/ingest/{source}: events, validated before they are published (ingest_events.py has their forms), and
/manual: a payload by hand, as the corrected one of a failed message or as a new one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    ACTOR,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    anything,
    api_route,
    integer,
    or_null,
    record,
    text,
)
from holdfast.api.http.ingest_events import EVENTS, answer_of, received, too_fast
from holdfast.api.http.requests import actor_of, body, query
from holdfast.api.http.sight import REVEAL
from holdfast.errors import BadInput
from holdfast.ingest.events import Ingest
from holdfast.ingest.manual import ManualIngest, Person
from holdfast.ingest.pace import IngestPace


def routes(manual: ManualIngest, ingest: Ingest, pace: IngestPace) -> list[ApiRoute]:
    async def ingest_events(request: Request) -> Response:
        topic = ingest.topic_of(str(request.path_params["source"]))
        given = await received(request)
        if seconds := pace.wait_seconds(len(given.events)):
            return too_fast(seconds)
        return answer_of(await given.take_all(ingest, topic), is_batch=given.is_batch)

    async def ingest_manually(request: Request) -> Response:
        failure_id = _failure_id(request)
        done = await manual.ingest(
            str(request.path_params["source"]),
            await body(request),
            Person(actor_of(request), request.headers.get("holdfast-reveal")),
            is_json=_says_json(request),
            failure_id=failure_id,
        )
        return JSONResponse({"topic": done.topic, "messageId": done.message_id, "failure": failure_id})

    return [
        api_route("POST", "/api/v1/ingest/{source}", ingest_events, EVENTS),
        api_route("POST", "/api/v1/ingest/{source}/manual", ingest_manually, _MANUAL),
    ]


def _failure_id(request: Request) -> int | None:
    """Of the query or the header; None where neither names one."""
    given = query(request, ("failure",)).get("failure", request.headers.get("holdfast-failure"))
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 18 and int(given)):
        raise BadInput("failure", f"must be the id of a failed message, not {given[:64]!r}")
    return int(given)


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


_MANUAL = Operation(
    "Put in a payload by hand",
    "With `failure`, that failed message is sent again with this payload, to the subscription that it failed at and to "
    "no other, and is marked as replayed; where the payload is another one, it becomes a revision first. Without it, "
    "the payload is published to the topic. The body is the payload, of any content type; the topic's schema is "
    "asked.",
    tag="ingest",
    parameters=(
        Parameter("source", "A topic: its id", where="path", required=True, example="market-ticks"),
        Parameter("failure", "The failed message that this corrects; also as the header Holdfast-Failure", integer()),
        ACTOR,
        REVEAL,
    ),
    body=Body(anything("The payload"), {"latitude": 39.7596, "longitude": -121.6219}),
    answer=Answer(
        record({"topic": text(), "messageId": text("Of what was sent"), "failure": or_null(integer())}), "It is sent"
    ),
    errors=(400, 403, 404, 409),
)
