"""Answers of long work: lines of JSON as it goes on, for those who accept application/x-ndjson, else its result alone.

{"progress": {"done": 200, "total": 1000}}
{"result": {…}}            or {"error": {…}}, when something goes wrong on the way
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.api.http.errors import error_content
from holdfast.api.http.exact import ExactJSONResponse
from holdfast.deadletter.progress import Progress
from holdfast.errors import HoldfastError
from holdfast.model.exact_json import dump_exact_json

log = logging.getLogger("holdfast.api")

NDJSON = "application/x-ndjson"

Result = TypeVar("Result")


async def answer_of(
    request: Request, work: AsyncIterator[Progress | Result], to_json: Callable[[Result], dict[str, Any]]
) -> Response:
    """What is wrong at once is an error like any other."""
    first = await anext(work)
    if NDJSON in request.headers.get("accept", ""):
        return StreamingResponse(_lines(first, work, to_json), media_type=NDJSON)
    result = first
    async for item in work:
        result = item
    assert not isinstance(result, Progress)
    return ExactJSONResponse(to_json(result))


async def _lines(
    first: Progress | Result, work: AsyncIterator[Progress | Result], to_json: Callable[[Result], dict[str, Any]]
) -> AsyncIterator[str]:
    try:
        yield _line(first, to_json)
        async for item in work:
            yield _line(item, to_json)
    except HoldfastError as error:
        yield dump_exact_json(error_content(error)) + "\n"
    except Exception:
        log.exception("unexpected error in long work")
        yield dump_exact_json(error_content(HoldfastError("unexpected error; the server's log has the details"))) + "\n"


def _line(item: Progress | Result, to_json: Callable[[Result], dict[str, Any]]) -> str:
    if isinstance(item, Progress):
        return dump_exact_json({"progress": {"done": item.done, "total": item.total}}) + "\n"
    return dump_exact_json({"result": to_json(item)}) + "\n"
