"""GET /api/v1/deliveries: what became of messages that were sent to one subscription alone."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    api_route,
    list_of,
    one_of,
    record,
    text,
)
from holdfast.api.http.requests import query
from holdfast.broker.service import Broker
from holdfast.errors import BadInput
from holdfast.model.fate import Fate
from holdfast.model.names import check_subscription

PATH = "/api/v1/deliveries"

MOST_IDS = 1000


def routes(broker: Broker) -> list[ApiRoute]:
    async def list_deliveries(request: Request) -> Response:
        given = query(request, ("subscription",), ("messageId",))
        subscription, message_ids = given.get("subscription", ""), given["messageId"]
        check_subscription("subscription", subscription)
        if not 1 <= len(message_ids) <= MOST_IDS:
            raise BadInput("messageId", f"must be given 1 to {MOST_IDS} times, not {len(message_ids)}")
        fates = broker.fates(subscription, message_ids)
        return JSONResponse(
            {"deliveries": [{"messageId": message_id, "fate": str(fate)} for message_id, fate in fates.items()]}
        )

    return [api_route("GET", PATH, list_deliveries, _LIST)]


# What it says of itself.

_SUBSCRIPTION = r"^projects/[^/\s]{1,128}/subscriptions/[A-Za-z][A-Za-z0-9_.~+%-]{2,254}$"

_FATE = record({"messageId": text(), "fate": one_of([*Fate])}, title="DeliveryFate")

_LIST = Operation(
    "What became of messages that were sent to one subscription alone",
    tag="broker",
    parameters=(
        Parameter("subscription", "Full path", text(pattern=_SUBSCRIPTION), required=True),
        Parameter("messageId", f"The messages' ids, {MOST_IDS} at most", required=True, repeats=True),
    ),
    answer=Answer(
        record({"deliveries": list_of(_FATE)}, title="DeliveryFates"),
        "A message that nothing is known of is `unknown`",
        example={"deliveries": [{"messageId": "4611694814806147073", "fate": "acked"}]},
    ),
    errors=(400, 404),
)
