"""Holdfast's errors as HTTP: the only place that knows which error has which status, and its body."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    FailedPrecondition,
    HoldfastError,
    NotFound,
    PermissionDenied,
    StorageUnavailable,
    Unsupported,
)

log = logging.getLogger("holdfast.api")

DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000

Endpoint = Callable[[Request], Awaitable[Response]]

# Status and name as Google's APIs pair them, so that a client of theirs reads ours.
_STATUS: Mapping[type[HoldfastError], tuple[int, str]] = {
    BadInput: (400, "INVALID_ARGUMENT"),
    FailedPrecondition: (400, "FAILED_PRECONDITION"),
    NotFound: (404, "NOT_FOUND"),
    PermissionDenied: (403, "PERMISSION_DENIED"),
    AlreadyExists: (409, "ALREADY_EXISTS"),
    Conflict: (409, "ABORTED"),
    Unsupported: (501, "UNIMPLEMENTED"),
    StorageUnavailable: (503, "UNAVAILABLE"),
}


def error_response(error: HoldfastError) -> JSONResponse:
    code, status = _status_of(error)
    return error_body(code, status, str(error))


def error_body(code: int, status: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(_content(code, status, message), status_code=code, headers=dict(headers or {}))


def error_content(error: HoldfastError) -> dict[str, Any]:
    """For where the status has gone out already."""
    return _content(*_status_of(error), str(error))


def _status_of(error: HoldfastError) -> tuple[int, str]:
    return next((told for kind, told in _STATUS.items() if isinstance(error, kind)), (500, "INTERNAL"))


def _content(code: int, status: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status}}


def with_errors(endpoint: Endpoint) -> Endpoint:
    """Wraps an endpoint so that a Holdfast error becomes its answer.

    Anything else is logged and told as a plain 500: its text may hold what a caller should not see.
    """

    @functools.wraps(endpoint)
    async def answering(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HoldfastError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it, and nothing is wrong here
        except Exception:
            log.exception("unexpected error in %s %s", request.method, request.url.path)
            return error_body(500, "INTERNAL", "unexpected error; the server's log has the details")

    return answering


def paging(request: Request) -> tuple[int, str]:
    """pageSize (1 to 1000, 100 when absent) and pageToken ("" when absent)."""
    return _page_size(request.query_params.get("pageSize")), request.query_params.get("pageToken", "")


def _page_size(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE_SIZE
    # isdecimal alone also accepts other scripts' digits; the length keeps int() from meeting a huge number.
    if text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= LARGEST_PAGE_SIZE:
        return int(text)
    raise BadInput("pageSize", f"must be a whole number from 1 to {LARGEST_PAGE_SIZE}, not {text[:64]!r}")
