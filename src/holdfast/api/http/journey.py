"""GET /api/v1/messages/{id}/journey: what the parts of this process know of a message, and of those that came of it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    api_route,
    integer,
    list_of,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.requests import query
from holdfast.errors import BadInput
from holdfast.model.journey import MOST_IDS, Did, Part, Precision, Teller, journey_of, journey_to_json

PATH = "/api/v1/messages/{id}/journey"

# Pub/Sub's own have some twenty digits; other brokers' may be longer.
LONGEST_ID = 256


def routes(tellers: Sequence[Teller]) -> list[ApiRoute]:
    async def get_journey(request: Request) -> Response:
        query(request, ())
        message_id = str(request.path_params["id"])
        if len(message_id) > LONGEST_ID:
            raise BadInput("id", f"has {len(message_id)} letters; {LONGEST_ID} are allowed")
        return JSONResponse(journey_to_json(await journey_of(message_id, tellers)))

    return [api_route("GET", PATH, get_journey, _GET)]


# What it says of itself.

_EVENT = record(
    {
        "time": or_null(time("Null where it is not known, and for how things stand now")),
        "precision": one_of([*Precision], "`by`: at that time or before; `now`: how it stands"),
        "notBefore": or_null(time("With `by`, where it is known")),
        "part": one_of([*Part]),
        "did": one_of([*Did]),
        "where": text("A topic, a subscription, a consumer or a row of the desk"),
        "messageId": text(),
        "attempt": integer("Of a delivery, from 1; else 0"),
        "detail": text(),
        "relatedMessageId": text("Its dead letter, or what it was sent again as"),
    },
    title="JourneyEvent",
)

_GET = Operation(
    "The journey of a message",
    "What the parts of this process know, by time. The id may be that of the message, of its dead letter, or of "
    "what it was sent again as: all of them are told of. A message that no part knows has no events.",
    tag="messages",
    parameters=(Parameter("id", "The message id", text(maxLength=LONGEST_ID), where="path", required=True),),
    answer=Answer(
        record(
            {
                "messageId": text(),
                "messageIds": list_of(text(), f"The message and those that belong to it, {MOST_IDS} at most"),
                "parts": list_of(one_of([*Part]), "Which parts were asked"),
                "events": list_of(_EVENT),
                "notes": list_of(text(), "What cannot be known, and why"),
            },
            title="Journey",
        ),
        "The journey",
        example={
            "messageId": "2841050416054273",
            "messageIds": ["2841050416054273"],
            "parts": ["broker"],
            "events": [
                {
                    "time": "2026-11-19T12:00:00Z",
                    "precision": "exact",
                    "notBefore": None,
                    "part": "broker",
                    "did": "published",
                    "where": "projects/local/topics/orders",
                    "messageId": "2841050416054273",
                    "attempt": 0,
                    "detail": "",
                    "relatedMessageId": "",
                }
            ],
            "notes": [],
        },
    ),
    errors=(400,),
)
