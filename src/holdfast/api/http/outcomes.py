"""GET /api/v1/outcomes: how many messages ended how, and what became of one of them."""

from __future__ import annotations

from typing import Any

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
    map_of,
    one_of,
    record,
    text,
    time,
)
from holdfast.consumer.recent import NAMES, RecentOutcome, RecentOutcomes
from holdfast.model.timestamps import format_rfc3339


def routes(recent: RecentOutcomes) -> list[ApiRoute]:
    async def list_outcomes(request: Request) -> Response:
        latest = recent.latest(request.query_params.get("messageId", ""))
        return JSONResponse({"totals": dict(recent.totals), "recent": [_outcome_json(one) for one in latest]})

    return [api_route("GET", "/api/v1/outcomes", list_outcomes, _LIST)]


def _outcome_json(one: RecentOutcome) -> dict[str, Any]:
    return {
        "messageId": one.message_id,
        "topic": one.topic,
        "subscription": one.subscription,
        "outcome": one.outcome,
        "document": one.document,
        "error": one.error,
        "time": format_rfc3339(one.time_ns),
    }


# What it says of itself.

_OUTCOME = record(
    {
        "messageId": text(),
        "topic": text(),
        "subscription": text(),
        "outcome": one_of(NAMES),
        "document": text("The one that was written; empty where there is none"),
        "error": text(),
        "time": time(),
    },
    title="Outcome",
)

_LIST = Operation(
    "How the messages ended that this process consumed",
    "Counted since it started; the last 1000 are remembered.",
    tag="consumer",
    parameters=(Parameter("messageId", "Of this message alone"),),
    answer=Answer(
        record(
            {"totals": map_of(integer(), "By outcome"), "recent": list_of(_OUTCOME, "Newest first")}, title="Outcomes"
        ),
        "Totals and the last ones",
    ),
)
