"""GET /api/v1/outcomes: how many messages ended how, and what became of one of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import with_errors
from holdfast.consumer.recent import RecentOutcome, RecentOutcomes
from holdfast.model.timestamps import format_rfc3339


def routes(recent: RecentOutcomes) -> list[Route]:
    async def outcomes(request: Request) -> Response:
        latest = recent.latest(request.query_params.get("messageId", ""))
        return JSONResponse({"totals": dict(recent.totals), "recent": [_outcome_json(one) for one in latest]})

    return [Route("/api/v1/outcomes", with_errors(outcomes))]


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
