"""/api/v1/alerts: what fires and what did, silences, and the receivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.alerts.alert import Severity
from holdfast.alerts.durations import seconds_of
from holdfast.alerts.notify.board import Board
from holdfast.alerts.notify.reading import KINDS
from holdfast.api.http.describing import (
    ACTOR,
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Schema,
    api_route,
    boolean,
    integer,
    list_of,
    map_of,
    number,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.errors import paging
from holdfast.api.http.requests import actor_of, check_origin, json_object, query, string
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput
from holdfast.model.timestamps import parse_rfc3339

PATH = "/api/v1/alerts"

LONGEST_COMMENT = 1000


def routes(board: Callable[[], Board], clock: Clock) -> list[ApiRoute]:
    """`board` raises where no alerts are judged."""

    async def list_alerts(request: Request) -> Response:
        query(request, ())
        return JSONResponse({"alerts": board().alerts()})

    async def list_history(request: Request) -> Response:
        query(request, ("pageSize", "pageToken"))
        page_size, token = paging(request)
        found = await board().history(page_size + 1, _id("pageToken", token) if token else None)
        page = found[:page_size]
        next_token = str(page[-1][0]) if len(found) > page_size else ""
        return JSONResponse({"alerts": [told for _, told in page], "nextPageToken": next_token})

    async def list_silences(request: Request) -> Response:
        query(request, ())
        return JSONResponse({"silences": board().silences()})

    async def silence(request: Request) -> Response:
        given = await json_object(request, ("match", "startsAt", "endsAt", "for", "comment"))
        starts_ns = _time(given, "startsAt")
        ends_ns = _end(given, starts_ns if starts_ns is not None else clock.now_ns())
        comment = string(given, "comment", LONGEST_COMMENT)
        made = await board().silence(_match(given), starts_ns, ends_ns, actor_of(request), comment)
        return JSONResponse(made)

    async def end_silence(request: Request) -> Response:
        check_origin(request)
        return JSONResponse(await board().unsilence(_id("id", request.path_params["id"])))

    async def list_receivers(request: Request) -> Response:
        query(request, ())
        return JSONResponse({"receivers": board().receivers()})

    async def test_receiver(request: Request) -> Response:
        check_origin(request)
        return JSONResponse(await board().test(request.path_params["name"], actor_of(request)))

    return [
        api_route("GET", PATH, list_alerts, _LIST),
        api_route("GET", f"{PATH}/history", list_history, _HISTORY),
        api_route("GET", f"{PATH}/silences", list_silences, _SILENCES),
        api_route("POST", f"{PATH}/silences", silence, _SILENCE_THEM),
        api_route("POST", f"{PATH}/silences/{{id}}:end", end_silence, _END_SILENCE),
        api_route("GET", f"{PATH}/receivers", list_receivers, _RECEIVERS),
        api_route("POST", f"{PATH}/receivers/{{name}}:test", test_receiver, _TEST),
    ]


def _id(name: str, given: str) -> int:
    if given.isascii() and given.isdecimal() and len(given) <= 18:
        return int(given)
    raise BadInput(name, f"must be a whole number, not {given[:64]!r}")


def _match(given: Mapping[str, Any]) -> list[str]:
    value = given.get("match")
    if not isinstance(value, list) or not all(isinstance(one, str) and len(one) <= LONGEST_COMMENT for one in value):
        raise BadInput("match", "must be a list of conditions, such as rule=DeadLettersWait")
    return value


def _time(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    try:
        return parse_rfc3339(value)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise BadInput(name, f"must be a time such as 2026-01-31T09:00:00Z, not {str(value)[:64]!r}") from None


def _end(given: Mapping[str, Any], starts_ns: int) -> int:
    ends_ns = _time(given, "endsAt")
    lasting = given.get("for")
    if (ends_ns is None) == (lasting is None):
        raise BadInput("for", "either `for` or `endsAt` must say how long it lasts")
    if ends_ns is not None:
        return ends_ns
    seconds = seconds_of(lasting) if isinstance(lasting, str) else None
    if not seconds:
        raise BadInput("for", f"must be how long, such as 30m, 2h or 7d, not {str(lasting)[:64]!r}")
    return starts_ns + seconds * NANOSECONDS


# What they say of themselves.

_TAG = "alerts"


def _alert(title: str, states: list[str], **more: Schema) -> Schema:
    return record(
        {
            "key": text("The same for as long as it fires"),
            "rule": text(),
            "severity": one_of([*Severity]),
            "state": one_of(states),
            "labels": map_of(text(), "What it is about"),
            "summary": text(),
            "value": or_null(number()),
            "startedAt": time(),
            "endedAt": or_null(time()),
            "details": map_of(text(), "`measured` and `limit` in words, `runbook`, and `next`: what to run first"),
            **more,
        },
        title=title,
    )


_NOW = _alert(
    "AlertNow",
    ["firing", "pending"],
    silencedUntil=or_null(time()),
    told=list_of(text(), "Receivers that have heard of it"),
)
_PAST = _alert("AlertOnce", ["firing", "resolved"])

_LIST = Operation(
    "Alerts that fire or are pending",
    "Of what this process judges.",
    tag=_TAG,
    answer=Answer(record({"alerts": list_of(_NOW)}), "Those that fire first"),
    errors=(400,),
)

_HISTORY = Operation(
    "Alerts that have fired",
    "Within 30 days after they ended. The newest first.",
    tag=_TAG,
    parameters=PAGING,
    answer=Answer(record({"alerts": list_of(_PAST), "nextPageToken": NEXT_PAGE_TOKEN}), "A page"),
    errors=(400,),
)

_SILENCE = record(
    {
        "id": integer(),
        "state": one_of(["pending", "active", "over"]),
        "match": list_of(text(), "All of them must hold"),
        "startsAt": time(),
        "endsAt": time(),
        "author": text(),
        "comment": text(),
        "createdAt": time(),
    },
    title="AlertSilence",
)

_SILENCES = Operation(
    "Silences",
    "Those of the last 30 days too.",
    tag=_TAG,
    answer=Answer(record({"silences": list_of(_SILENCE)}), "The newest first"),
    errors=(400,),
)

_SILENCE_THEM = Operation(
    "Silence alerts for a time",
    "What fires still when it ends is told then. The end of what was told before is told at once.",
    tag=_TAG,
    parameters=(ACTOR,),
    body=Body(
        record(
            {
                "match": list_of(text(), 'Conditions on labels, rule and severity, such as severity="warning"'),
                "for": text("How long: 30m, 2h"),
                "startsAt": time("Now, where it is absent"),
                "endsAt": time("Instead of `for`"),
                "comment": text("Why"),
            },
            optional=("for", "startsAt", "endsAt"),
            closed=True,
        ),
        example={"match": ['rule="BacklogGrows"'], "for": "2h", "comment": "load test"},
    ),
    answer=Answer(_SILENCE, "As it was made"),
    errors=(400,),
)

_END_SILENCE = Operation(
    "End a silence now",
    tag=_TAG,
    answer=Answer(_SILENCE, "As it is now"),
    errors=(400, 404),
)

_RECEIVERS = Operation(
    "Who is told, and how that went",
    "Times and errors since this process started.",
    tag=_TAG,
    answer=Answer(
        record(
            {
                "receivers": list_of(
                    record(
                        {
                            "name": text(),
                            "kind": one_of(KINDS),
                            "where": text("Without what is secret"),
                            "match": list_of(text()),
                            "groupBy": list_of(text()),
                            "waiting": integer("Groups of alerts of which it has yet to be told"),
                            "lastSentAt": or_null(time()),
                            "lastFailedAt": or_null(time()),
                            "lastError": text(),
                        },
                        title="AlertReceiver",
                    )
                )
            }
        ),
        "All of the settings",
    ),
    errors=(400,),
)

_TEST = Operation(
    "Send a test to a receiver",
    "At once: no grouping, no silence and no second try.",
    tag=_TAG,
    parameters=(ACTOR,),
    answer=Answer(
        record({"receiver": text(), "sent": boolean(), "error": text("Why not, where it was not sent")}), "How it went"
    ),
    errors=(400, 404),
)
