"""The desk over HTTP: /api/v1/failures. Translates only; the desk decides."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import paging, with_errors
from holdfast.deadletter.presentation import failure_to_json
from holdfast.deadletter.service import Desk
from holdfast.errors import NotFound


def routes(desk: Desk) -> list[Route]:
    async def list_failures(request: Request) -> Response:
        page_size, page_token = paging(request)
        page = await desk.list_failures(
            status=request.query_params.get("status", ""),
            reason=request.query_params.get("reason", ""),
            subscription=request.query_params.get("subscription", ""),
            page_size=page_size,
            page_token=page_token,
        )
        return JSONResponse(
            {
                "failures": [failure_to_json(failure, payload=False) for failure in page.failures],
                "nextPageToken": page.next_page_token,
                "counts": {str(status): count for status, count in (await desk.counts()).items()},
            }
        )

    async def get_failure(request: Request) -> Response:
        failure = await desk.get_failure(_failure_id(request.path_params["id"]))
        return JSONResponse(failure_to_json(failure, payload=True))

    return [
        Route("/api/v1/failures", with_errors(list_failures), methods=["GET"]),
        Route("/api/v1/failures/{id}", with_errors(get_failure), methods=["GET"]),
    ]


def _failure_id(text: str) -> int:
    """Anything that cannot be an id names no failure. The length keeps int() from meeting a huge number."""
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        return int(text)
    raise NotFound(f"there is no failure {text[:64]!r}")
