"""/api/v1/groups: failures that went wrong in the same way, and what people do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    ACTOR,
    IF_MATCH,
    MOMENT,
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    Schema,
    api_route,
    integer,
    list_of,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.errors import Endpoint, paging
from holdfast.api.http.requests import actor_of, expected_version, json_object, query, string
from holdfast.api.http.sight import REVEAL, redaction_for
from holdfast.deadletter.grouping import DEFAULT_SINCE, Grouping
from holdfast.deadletter.groups import Group, GroupState
from holdfast.deadletter.presentation import comment_to_json, found_group_to_json, group_to_json
from holdfast.deadletter.sight import Sight
from holdfast.model.failed_message import FailureClass

LONGEST_ASSIGNEE = 200
LONGEST_COMMENT = 10_000

Change = Callable[[str, str, int | None], Awaitable[Group]]


def routes(grouping: Grouping, sight: Sight) -> list[ApiRoute]:
    async def list_groups(request: Request) -> Response:
        given = query(request, ("subscription", "reason", "assignee", "pageSize", "pageToken"), ("state",))
        redaction = await redaction_for(request, sight)
        page = await grouping.list_groups(grouping.group_filter(given.pop("state"), given), *paging(request))
        groups = [group_to_json(await grouping.shown(group, redaction)) for group in page.groups]
        return JSONResponse({"groups": groups, "nextPageToken": page.next_page_token})

    async def get_group(request: Request) -> Response:
        since = query(request, ("since",)).get("since", DEFAULT_SINCE)
        redaction = await redaction_for(request, sight)
        found = await grouping.find(_fingerprint(request), since)
        return JSONResponse(found_group_to_json(replace(found, group=await grouping.shown(found.group, redaction))))

    async def assign_group(request: Request) -> Response:
        given = await json_object(request, ("assignee", "version"))
        assignee = string(given, "assignee", LONGEST_ASSIGNEE, default=None if "assignee" not in given else "")
        version = expected_version(request, given)
        group = await grouping.assign(_fingerprint(request), assignee, actor_of(request), version)
        return JSONResponse(group_to_json(await grouping.shown(group, sight.redaction)))

    async def comment_on_group(request: Request) -> Response:
        said = string(await json_object(request, ("text",)), "text", LONGEST_COMMENT)
        comment = await grouping.comment(_fingerprint(request), said, actor_of(request))
        return JSONResponse(comment_to_json(comment), status_code=201)

    def changing(name: str, change: Change) -> Endpoint:
        """Of a change that needs to know no more than which group."""

        async def endpoint(request: Request) -> Response:
            given = await json_object(request, ("version",))
            group = await change(_fingerprint(request), actor_of(request), expected_version(request, given))
            return JSONResponse(group_to_json(await grouping.shown(group, sight.redaction)))

        endpoint.__name__ = name
        return endpoint

    one = "/api/v1/groups/{fingerprint}"
    return [
        # Before the group itself, whose path would take the verb for a part of the fingerprint.
        api_route("POST", f"{one}:acknowledge", changing("acknowledge_group", grouping.acknowledge), _ACKNOWLEDGE),
        api_route("POST", f"{one}:resolve", changing("resolve_group", grouping.resolve), _RESOLVE),
        api_route("POST", f"{one}:reopen", changing("reopen_group", grouping.reopen), _REOPEN),
        api_route("POST", f"{one}:assign", assign_group, _ASSIGN),
        api_route("POST", f"{one}/comments", comment_on_group, _COMMENT_ON),
        api_route("GET", "/api/v1/groups", list_groups, _LIST),
        api_route("GET", one, get_group, _GET),
    ]


def _fingerprint(request: Request) -> str:
    return str(request.path_params["fingerprint"])


# What they say of themselves.

_GROUP = {
    "fingerprint": text(),
    "subscription": text("Full path"),
    "failureReason": text(),
    "failureClass": one_of([*FailureClass]),
    "example": text("The error, without what differs between its failures"),
    "state": one_of([*GroupState]),
    "assignee": text("Empty: nobody"),
    "count": integer("Failures that were ever recorded"),
    "waiting": integer("Permanent failures now"),
    "firstSeen": or_null(time()),
    "lastSeen": or_null(time()),
    "version": integer("One more with every change"),
}

_COMMENT = record({"author": text(), "text": text(), "createdAt": or_null(time())}, title="Comment")

GROUP = record(_GROUP, title="Group")

WHOLE_GROUP = record(
    {
        **_GROUP,
        "countsByHour": list_of(
            record({"hour": time("Its beginning"), "count": integer()}), "Hours without any are left out"
        ),
        "comments": list_of(_COMMENT, "Oldest first"),
    },
    title="WholeGroup",
)

_VERSION = integer("The version that is meant; 409 when it is another by now", minimum=1)
_VERSION_BODY = Body(record({"version": _VERSION}, optional=("version",), closed=True), required=False)

_EXAMPLE = {
    "fingerprint": "5f2b8c1d9e3a4f60",
    "subscription": "projects/local/subscriptions/market-ticks.materializer",
    "failureReason": "SCHEMA_VALIDATION_ERROR",
    "failureClass": "poison",
    "example": "symbol: is missing",
    "state": "open",
    "assignee": "",
    "count": 12,
    "waiting": 12,
    "firstSeen": "2026-11-18T09:00:00Z",
    "lastSeen": "2026-11-18T09:04:00Z",
    "version": 1,
}


def _action(summary: str, body: Body = _VERSION_BODY, description: str = "") -> Operation:
    return Operation(
        summary,
        description,
        tag="groups",
        parameters=(ACTOR, IF_MATCH),
        body=body,
        answer=Answer(GROUP, "The group", example=_EXAMPLE),
        errors=(400, 404, 409),
    )


def _body(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Body:
    return Body(record(properties, optional=optional, closed=True))


_LIST = Operation(
    "Groups, the last seen first",
    tag="groups",
    parameters=(
        Parameter("state", "In one of these states", one_of([*GroupState]), repeats=True),
        Parameter("subscription", "Of this subscription: an id, or a full path"),
        Parameter("reason", "With this failure reason"),
        Parameter("assignee", "Of this person"),
        *PAGING,
        REVEAL,
    ),
    answer=Answer(
        record({"groups": list_of(GROUP), "nextPageToken": NEXT_PAGE_TOKEN}, title="GroupPage"),
        "A page",
        example={"groups": [_EXAMPLE], "nextPageToken": ""},
    ),
    errors=(400, 403),
)

_GET = Operation(
    "One group, with its counts by hour and comments",
    tag="groups",
    parameters=(
        Parameter("since", f"How far back the counts go; {DEFAULT_SINCE} where it is absent", MOMENT, example="24h"),
        REVEAL,
    ),
    answer=Answer(WHOLE_GROUP, "The group"),
    errors=(400, 403, 404),
)

_ACKNOWLEDGE = _action("Somebody has seen it")
_RESOLVE = _action("Its cause is gone", description="It is reopened by itself when a failure of it comes in.")
_REOPEN = _action("Its cause is not gone after all")
_ASSIGN = _action(
    "Give it to somebody, or with an empty text to nobody",
    _body({"assignee": text(maxLength=LONGEST_ASSIGNEE), "version": _VERSION}, optional=("version",)),
)
_COMMENT_ON = Operation(
    "Say something about it",
    tag="groups",
    parameters=(ACTOR,),
    body=_body({"text": text(maxLength=LONGEST_COMMENT, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")}),
    answer=Answer(_COMMENT, "The comment", status=201),
    errors=(400, 404),
)
