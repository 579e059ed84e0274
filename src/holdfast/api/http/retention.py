"""POST /api/v1/failures:cleanUp: erases now what was mended long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    ACTOR,
    Answer,
    ApiRoute,
    Body,
    Operation,
    api_route,
    integer,
    number,
    record,
)
from holdfast.api.http.requests import actor_of, json_object
from holdfast.errors import BadInput

# As long as what was mended is kept anyway.
DEFAULT_DAYS = 30

# Days and actor; gives how many were erased.
CleanUp = Callable[[float, str], Awaitable[int]]


def routes(clean_up: CleanUp) -> list[ApiRoute]:
    async def clean_up_failures(request: Request) -> Response:
        days = (await json_object(request, ("days",))).get("days", DEFAULT_DAYS)
        if not isinstance(days, int | float) or isinstance(days, bool):
            raise BadInput("days", "must be a number")
        return JSONResponse({"erased": await clean_up(days, actor_of(request))})

    return [api_route("POST", "/api/v1/failures:cleanUp", clean_up_failures, _CLEAN_UP)]


_CLEAN_UP = Operation(
    "Erase what was mended long ago",
    "Failures that a retry has mended or that were replayed more than `days` ago, but for those under legal hold. "
    "Permanent failures stay.",
    tag="failures",
    parameters=(ACTOR,),
    body=Body(
        record({"days": number(minimum=0, maximum=36_500, default=DEFAULT_DAYS)}, optional=("days",), closed=True),
        {"days": 30},
        required=False,
    ),
    answer=Answer(record({"erased": integer()}), "How many", example={"erased": 1247}),
    errors=(400,),
)
