"""GET /api/v1/pauses: the subscriptions whose delivery pauses because it failed in a storm, and why."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import Answer, ApiRoute, Operation, Parameter, api_route, list_of, record, text, time
from holdfast.api.http.requests import query
from holdfast.broker.breaker import Pause
from holdfast.broker.service import Broker
from holdfast.clock import Clock
from holdfast.model.names import check_subscription
from holdfast.model.timestamps import format_rfc3339

PATH = "/api/v1/pauses"


def routes(broker: Broker, clock: Clock) -> list[ApiRoute]:
    async def list_pauses(request: Request) -> Response:
        name = query(request, ("subscription",)).get("subscription", "")
        if name:
            check_subscription("subscription", name)
        queues = [broker.queue(name)] if name else sorted(broker.queues, key=lambda queue: queue.config.name)
        paused = [pause_json(queue.config.name, queue.pause) for queue in queues if queue.pause]
        return JSONResponse({"pauses": paused, "time": format_rfc3339(clock.now_ns())})

    return [api_route("GET", PATH, list_pauses, _LIST)]


def pause_json(subscription: str, pause: Pause) -> dict[str, Any]:
    return {
        "subscription": subscription,
        "because": pause.why,
        "since": format_rfc3339(pause.since_ns),
        "until": format_rfc3339(pause.until_ns),
    }


_PAUSE = record(
    {
        "subscription": text("Full path"),
        "because": text(),
        "since": time(),
        "until": time("From then on one message is tried"),
    },
    title="Pause",
)

_LIST = Operation(
    "Subscriptions whose delivery pauses because it failed in a storm",
    tag="broker",
    parameters=(Parameter("subscription", "Full path; all where it is absent"),),
    answer=Answer(record({"pauses": list_of(_PAUSE), "time": time("The broker's own")}, title="Pauses"), "By name"),
    errors=(400, 404),
)
