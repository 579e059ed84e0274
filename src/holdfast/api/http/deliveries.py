"""GET /api/v1/deliveries: what became of messages that were sent to one subscription alone."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import with_errors
from holdfast.broker.service import Broker
from holdfast.errors import BadInput
from holdfast.model.names import check_subscription

PATH = "/api/v1/deliveries"

MOST_IDS = 1000


def routes(broker: Broker) -> list[Route]:
    async def list_deliveries(request: Request) -> Response:
        subscription = request.query_params.get("subscription", "")
        check_subscription("subscription", subscription)
        message_ids = request.query_params.getlist("messageId")
        if not 1 <= len(message_ids) <= MOST_IDS:
            raise BadInput("messageId", f"must be given 1 to {MOST_IDS} times, not {len(message_ids)}")
        fates = broker.fates(subscription, message_ids)
        return JSONResponse(
            {"deliveries": [{"messageId": message_id, "fate": str(fate)} for message_id, fate in fates.items()]}
        )

    return [Route(PATH, with_errors(list_deliveries), methods=["GET"])]
