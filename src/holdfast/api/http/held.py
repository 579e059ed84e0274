"""/api/v1/held: the dead-lettered messages that ordering keys wait at, and letting a key go on without one."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    api_route,
    boolean,
    integer,
    list_of,
    record,
    text,
    time,
)
from holdfast.api.http.errors import paging
from holdfast.api.http.requests import json_object, query, string
from holdfast.broker.held import HeldMessage
from holdfast.broker.service import Broker
from holdfast.errors import BadInput
from holdfast.model.fate import Release
from holdfast.model.names import check_subscription
from holdfast.model.timestamps import format_rfc3339

PATH = "/api/v1/held"

LONGEST_NAME = 1000


def routes(broker: Broker) -> list[ApiRoute]:
    async def list_held(request: Request) -> Response:
        subscription = query(request, ("subscription", "pageSize", "pageToken")).get("subscription", "")
        if subscription:
            check_subscription("subscription", subscription)
        page_size, page_token = paging(request)
        last = _last_given(page_token)
        rest = [one for one in await broker.held(subscription) if _place(one) > last]
        page = rest[:page_size]
        token = _token_after(page[-1]) if len(rest) > page_size else ""
        return JSONResponse({"held": [held_to_json(one) for one in page], "nextPageToken": token})

    async def release(request: Request) -> Response:
        given = await json_object(request, ("subscription", "messageId"))
        subscription = string(given, "subscription", LONGEST_NAME)
        check_subscription("subscription", subscription)
        released = await broker.release(subscription, string(given, "messageId", LONGEST_NAME))
        return JSONResponse(release_to_json(released))

    return [
        api_route("GET", PATH, list_held, _LIST),
        api_route("POST", f"{PATH}/release", release, _RELEASE),
    ]


def release_to_json(release: Release) -> dict[str, Any]:
    return {"released": release is Release.RELEASED, "notYet": release is Release.NOT_YET}


def held_to_json(held: HeldMessage) -> dict[str, Any]:
    return {
        "subscription": held.subscription,
        "messageId": held.message_id,
        "orderingKey": held.ordering_key,
        "publishTime": format_rfc3339(held.publish_time_ns),
        "deliveryAttempts": held.attempts,
        "waiting": held.waiting,
    }


# Page tokens: where the page ended, made opaque so that nobody builds on its form.


def _place(held: HeldMessage) -> tuple[str, int]:
    return held.subscription, int(held.message_id)


def _token_after(held: HeldMessage) -> str:
    return base64.urlsafe_b64encode(f"{held.subscription} {held.message_id}".encode()).decode()


def _last_given(token: str) -> tuple[str, int]:
    """("", 0) for the first page, which is before every place."""
    try:
        subscription, _, message_id = (
            base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode().partition(" ")
        )
        return subscription, int(message_id[:19] or 0)
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise BadInput("pageToken", "was not given by this list") from error


# What they say of themselves.

_HELD = record(
    {
        "subscription": text("Full path"),
        "messageId": text(),
        "orderingKey": text(),
        "publishTime": time(),
        "deliveryAttempts": integer(),
        "waiting": integer("Messages of the key behind it, as far as they were read"),
    },
    title="HeldMessage",
)

_LIST = Operation(
    "The dead-lettered messages that ordering keys wait at",
    "Only subscriptions with `holdfast-ordered-dead-letters: hold` have any.",
    tag="broker",
    parameters=(Parameter("subscription", "Full path; of all where it is absent"), *PAGING),
    answer=Answer(record({"held": list_of(_HELD), "nextPageToken": NEXT_PAGE_TOKEN}, title="HeldPage"), "A page"),
    errors=(400, 404),
)

_RELEASE = Operation(
    "Let an ordering key go on without its held message",
    tag="broker",
    body=Body(record({"subscription": text("Full path"), "messageId": text()}, closed=True)),
    answer=Answer(
        record(
            {
                "released": boolean("false when it was not held"),
                "notYet": boolean("It is not settled either: it may be on its way to be held"),
            },
            title="Released",
        ),
        "Done",
    ),
    errors=(400, 404),
)
