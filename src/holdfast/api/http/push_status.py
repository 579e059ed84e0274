"""GET /api/v1/push: how push delivery does, subscription by subscription."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    api_route,
    integer,
    list_of,
    map_of,
    number,
    record,
    text,
    time,
)
from holdfast.api.http.errors import paging
from holdfast.broker.push.status import LATENCY_BOUNDS, PushStatus
from holdfast.clock import Clock
from holdfast.errors import BadInput
from holdfast.model.names import check_subscription, short_id
from holdfast.model.timestamps import format_rfc3339


def routes(status: Callable[[], list[PushStatus]], clock: Clock) -> list[ApiRoute]:
    async def list_push(request: Request) -> Response:
        page_size, page_token = paging(request)
        last = _last_given(page_token)
        wanted = _selection(request.query_params.get("subscription", ""))
        rows = sorted([row for row in status() if wanted(row.subscription)], key=lambda row: row.subscription)
        rest = [row for row in rows if row.subscription > last]
        page = rest[:page_size]
        return JSONResponse(
            {
                "subscriptions": [push_status_json(row) for row in page],
                "nextPageToken": _token_after(page[-1].subscription) if len(rest) > page_size else "",
                # So that who asks can tell how far off a time is, whatever his own clock says.
                "time": format_rfc3339(clock.now_ns()),
            }
        )

    return [api_route("GET", "/api/v1/push", list_push, _LIST)]


def _selection(wanted: str) -> Callable[[str], bool]:
    """A short id is that subscription of any project."""
    if "/" in wanted:
        check_subscription("subscription", wanted)
        return lambda name: name == wanted
    return lambda name: not wanted or short_id(name) == wanted


def push_status_json(row: PushStatus) -> dict[str, Any]:
    """Times that are not known are left out."""
    times = {
        "oldestDueTime": row.oldest_due_ns,
        "nextDueTime": row.next_due_ns,
        "pausedUntil": row.pause.until_ns if row.pause else None,
        "lastAttemptTime": row.last_attempt_ns,
    }
    return {
        "subscription": row.subscription,
        "endpoint": row.endpoint,
        "state": row.state,
        "window": row.window,
        "inFlight": row.in_flight,
        "due": row.due,
        "waiting": row.waiting,
        "lastStatus": row.last_status,
        "lastError": row.last_error,
        "dropped": row.dropped,
        "attempts": dict(sorted(row.attempts.items())),
        "latency": _latency(row.latency_buckets),
        **({"pausedBecause": row.pause.why} if row.pause else {}),
        **{name: format_rfc3339(when_ns) for name, when_ns in times.items() if when_ns is not None},
    }


# Latency.


def _latency(buckets: Sequence[int]) -> dict[str, Any]:
    count = sum(buckets)
    if not count:
        return {"count": 0}
    return {"count": count, "p50Seconds": _quantile(buckets, 0.5), "p99Seconds": _quantile(buckets, 0.99)}


def _quantile(buckets: Sequence[int], share: float) -> float:
    """Inside a bucket values are taken to be spread evenly. What took longer than all bounds counts as the last."""
    rank = share * sum(buckets)
    below = 0
    lower = 0.0
    for upper, up_to in zip(LATENCY_BOUNDS, accumulate(buckets), strict=False):
        if up_to >= rank:
            return round(lower + (upper - lower) * (rank - below) / (up_to - below), 6)
        below, lower = up_to, upper
    return LATENCY_BOUNDS[-1]


# Page tokens: the last name of the page, made opaque so that nobody builds on its form.


def _token_after(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _last_given(token: str) -> str:
    """ "" for the first page, which is below every name."""
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise BadInput("pageToken", "was not given by this list") from error


# What it says of itself.

_TIMES = {
    "oldestDueTime": time("Since when the oldest message that could be sent now has been due"),
    "nextDueTime": time("When the next message is due"),
    "lastAttemptTime": time(),
}

_STATUS = record(
    {
        "subscription": text("Full path"),
        "endpoint": text(),
        "state": text(),
        "window": integer("Requests that may be under way at once"),
        "inFlight": integer(),
        "due": integer("Messages that could be sent now"),
        "waiting": integer("Failed messages that wait for the time of their next attempt"),
        "lastStatus": text("The HTTP status, or one word such as `timeout`"),
        "lastError": text(),
        "dropped": integer("Given up after their attempts"),
        "attempts": map_of(integer(), "By how they ended"),
        "latency": record(
            {"count": integer(), "p50Seconds": number(), "p99Seconds": number()}, optional=("p50Seconds", "p99Seconds")
        ),
        **_TIMES,
    },
    title="PushStatus",
    optional=[*_TIMES],
)

_LIST = Operation(
    "How push delivery does, subscription by subscription",
    "Counted since the broker started.",
    tag="broker",
    parameters=(Parameter("subscription", "This one: an id of any project, or a full path"), *PAGING),
    answer=Answer(
        record(
            {"subscriptions": list_of(_STATUS), "nextPageToken": NEXT_PAGE_TOKEN, "time": time("The broker's own")},
            title="PushPage",
        ),
        "A page",
    ),
    errors=(400,),
)
