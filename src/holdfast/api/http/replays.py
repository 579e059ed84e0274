"""/api/v1/replays: sending failed messages again. Translates only; the desk decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    ACTOR,
    PAGING,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    api_route,
    one_of,
)
from holdfast.api.http.errors import Endpoint, paging
from holdfast.api.http.replay_schemas import ITEM_PAGE, JOB, JOB_PAGE, PLAN, REQUEST, SHADOW_REPORT
from holdfast.api.http.requests import actor_of, json_object, query
from holdfast.clock import Clock
from holdfast.deadletter.replay.jobs import ItemState, JobState
from holdfast.deadletter.replay.options import options_from_json
from holdfast.deadletter.replay.presentation import (
    item_to_json,
    plan_to_json,
    progress_to_json,
    shadow_report_to_json,
)
from holdfast.deadletter.replay.service import Progress, Replays
from holdfast.deadletter.selecting import Reading, selection_from_json
from holdfast.deadletter.sight import Sight
from holdfast.errors import BadInput, NotFound

Change = Callable[[int, str], Awaitable[Progress]]
State = TypeVar("State", bound=StrEnum)


def routes(replays: Replays, sight: Sight, clock: Clock, project: str) -> list[ApiRoute]:
    async def create_replay(request: Request) -> Response:
        given = await json_object(request, ("selection", "options", "dryRun"))
        if "selection" not in given:
            raise BadInput("selection", "must be there; {} means every failure")
        selection = selection_from_json(given["selection"], Reading(clock.now_ns(), project))
        sight.redaction.check_selection(selection)
        options = options_from_json(given.get("options", {}), project, replays.defaults)
        if _dry_run(given):
            return JSONResponse(plan_to_json(await replays.plan(selection, options)))
        created = await replays.create(selection, options, actor_of(request))
        return JSONResponse(progress_to_json(created), status_code=201)

    async def list_replays(request: Request) -> Response:
        given = query(request, ("pageSize", "pageToken"), ("state",))
        jobs, token = await replays.list(_states(JobState, given["state"]), *paging(request))
        return JSONResponse({"replays": [progress_to_json(job) for job in jobs], "nextPageToken": token})

    async def get_replay(request: Request) -> Response:
        return JSONResponse(progress_to_json(await replays.get(_job_id(request))))

    async def list_replay_items(request: Request) -> Response:
        given = query(request, ("pageSize", "pageToken"), ("state",))
        page = await replays.items(_job_id(request), _states(ItemState, given["state"]), *paging(request))
        items = [item_to_json(item) for item in page.items]
        return JSONResponse({"items": items, "nextPageToken": page.next_page_token})

    async def get_shadow_report(request: Request) -> Response:
        return JSONResponse(shadow_report_to_json(await replays.shadow_report(_job_id(request))))

    def changing(name: str, change: Change) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            await json_object(request, ())
            return JSONResponse(progress_to_json(await change(_job_id(request), actor_of(request))))

        endpoint.__name__ = name
        return endpoint

    one = "/api/v1/replays/{id}"
    return [
        api_route("POST", "/api/v1/replays", create_replay, _CREATE),
        api_route("GET", "/api/v1/replays", list_replays, _LIST),
        # Those with a verb before the one without, whose id would match them too.
        api_route("POST", f"{one}:start", changing("start_replay", replays.start), _START),
        api_route("POST", f"{one}:pause", changing("pause_replay", replays.pause), _PAUSE),
        api_route("POST", f"{one}:resume", changing("resume_replay", replays.resume), _RESUME),
        api_route("POST", f"{one}:cancel", changing("cancel_replay", replays.cancel), _CANCEL),
        api_route("GET", one, get_replay, _GET),
        api_route("GET", f"{one}/items", list_replay_items, _ITEMS),
        api_route("GET", f"{one}/shadow", get_shadow_report, _SHADOW),
    ]


def _dry_run(given: Mapping[str, Any]) -> bool:
    value = given.get("dryRun", False)
    if not isinstance(value, bool):
        raise BadInput("dryRun", "must be true or false")
    return value


def _job_id(request: Request) -> int:
    text = str(request.path_params["id"])
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    raise NotFound(f"there is no replay {text[:64]!r}")


def _states(kind: type[State], given: list[str]) -> list[State]:
    try:
        return [kind(name) for name in given]
    except ValueError:
        raise BadInput("state", f"must be one of {', '.join(kind)}") from None


# What they say of themselves.


def _changing(summary: str, description: str = "") -> Operation:
    return Operation(summary, description, tag="replays", parameters=(ACTOR,), answer=Answer(JOB), errors=(400, 404))


_EXAMPLE = {
    "selection": {"group": "3f9a1c20d4e5b678", "status": ["permanent_failure"]},
    "options": {"perSecond": 50, "canary": 5},
    "dryRun": True,
}

_CREATE = Operation(
    "Make a replay of a selection",
    "It sends nothing before it is started. With `dryRun` nothing is made: the answer is the plan, with status 200.",
    tag="replays",
    parameters=(ACTOR,),
    body=Body(REQUEST, _EXAMPLE),
    answer=Answer(JOB, "The replay", status=201),
    also=(Answer(PLAN, "The plan"),),
    errors=(400, 403),
)
_LIST = Operation(
    "Replays, newest first",
    tag="replays",
    parameters=(Parameter("state", "In one of these", one_of([*JobState]), repeats=True), *PAGING),
    answer=Answer(JOB_PAGE),
    errors=(400,),
)
_GET = Operation("One replay and how far it is", tag="replays", answer=Answer(JOB), errors=(404,))
_ITEMS = Operation(
    "The messages of a replay, in the order in which they are sent",
    tag="replays",
    parameters=(Parameter("state", "In one of these", one_of([*ItemState]), repeats=True), *PAGING),
    answer=Answer(ITEM_PAGE),
    errors=(400, 404),
)
_SHADOW = Operation("What a shadow replay has found", tag="replays", answer=Answer(SHADOW_REPORT), errors=(400, 404))
_START = _changing("Start a replay", "Its canary first, where it has one.")
_PAUSE = _changing("Pause a replay", "What is out stays out.")
_RESUME = _changing("Resume a replay", "Its canary and the share that may fail count from here.")
_CANCEL = _changing("Cancel a replay", "What is out stays out; the rest stays as it is.")
