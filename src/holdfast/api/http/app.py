"""The HTTP application: joins the routes of the parts that run in this process, and says how they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

import holdfast
from holdfast.api.http import health, openapi, push_endpoint
from holdfast.api.http.errors import error_body
from holdfast.api.http.health import Check


def make_app(routes: Sequence[Route], checks: Mapping[str, Check]) -> ASGIApp:
    """`checks` are what this process depends on, by name; each raises when it is not there."""

    # A parameter at the end would also take "42:edit": what is more exact comes first.
    routes = sorted([*routes, *openapi.routes(routes)], key=lambda route: route.path.endswith("}"))

    async def index(request: Request) -> Response:
        paths = sorted({route.path for route in routes} | {"/healthz", "/readyz"})
        return PlainTextResponse(f"Holdfast {holdfast.__version__}\n\n" + "\n".join(paths) + "\n")

    async def http_error(request: Request, error: Exception) -> Response:
        """Starlette's own 404 and 405 in the same form as every other error. It knows the methods of one route only."""
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(sorted(_methods_of(request.url.path, everything.routes)))
        name = HTTPStatus(error.status_code).name
        return error_body(error.status_code, name, f"{error.detail}: {request.url.path}", headers)

    own = [Route("/", index), *health.routes(checks)]
    everything = Starlette(routes=[*own, *routes], exception_handlers={HTTPException: http_error})
    push = next((route.app for route in routes if route.path == push_endpoint.PATH), everything)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # By far the most frequent request: Starlette's own way to it would take longer than the message does.
        is_push = scope.get("path") == push_endpoint.PATH and scope.get("method") == "POST"
        await (push if is_push else everything)(scope, receive, send)

    return app


def _methods_of(path: str, routes: Sequence[BaseRoute]) -> set[str]:
    """Of all routes with the path that is matched first."""
    known = [route for route in routes if isinstance(route, Route)]
    matched = next((route.path for route in known if route.path_regex.match(path)), "")
    return {method for route in known if route.path == matched for method in route.methods or ()}
