"""The REST application: finds the method a request means, calls it as gRPC would, and answers in JSON."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from google.pubsub_v1.types import pubsub
from starlette.routing import Route
from starlette.routing import Router as ExtraRouter
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.http2.request_head import OWN, TRACEPARENT
from holdfast.api.rest.answer import Answer, json_answer, send_answer, text_answer
from holdfast.api.rest.body import ClientGone, read_body
from holdfast.api.rest.errors import error_answer, internal_error
from holdfast.api.rest.paths import Router
from holdfast.api.rest.rules import Rule, all_rules
from holdfast.api.rest.transcode import fill_request, to_json, wants_integer_enums
from holdfast.errors import BadInput, NotFound, Unsupported

log = logging.getLogger("holdfast.broker")

MOST_QUERY_PARAMETERS = 1000

Services = Mapping[str, Mapping[str, Method | StreamMethod]]


@dataclass(frozen=True, slots=True)
class _Route:
    """`method` is None where we do not offer what the rule leads to."""

    rule: Rule
    method: Method | StreamMethod | None


def rest_app(services: Services, extra_routes: Sequence[Route] = ()) -> ASGIApp:
    """`services` are the same methods by name that the gRPC server offers. `extra_routes` come before them."""
    routes = [_Route(rule, services.get(rule.service, {}).get(rule.method)) for rule in all_rules()]
    router = Router((route.rule.verb, route.rule.template, route) for route in routes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await _answer(router, scope, receive)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and the server goes on
            answer = _told(error, scope)
        await send_answer(answer, send)

    return _with_extra(extra_routes, app) if extra_routes else app


def _with_extra(extra_routes: Sequence[Route], pubsub_app: ASGIApp) -> ASGIApp:
    extra = ExtraRouter(extra_routes, redirect_slashes=False, default=pubsub_app)
    # A look at the first part of the path, so that Pub/Sub's own requests do not pay for being compared with each.
    first_parts = {_first_part(route.path) for route in extra_routes}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = extra if _first_part(scope["path"]) in first_parts else pubsub_app
        await chosen(scope, receive, send)

    return app


def _first_part(path: str) -> str:
    """Of /metrics and of /api/v1/push the part behind the first slash. Extra routes have no variable there."""
    return path[1:].partition("/")[0]


def _told(error: Exception, scope: Scope) -> Answer:
    answer = error_answer(error)
    if answer is None:
        asked = f"{scope['method']} {scope['path']}"
        log.error("unexpected error", exc_info=error, extra={"fields": {"method": asked}})
    return answer or internal_error()


async def _answer(router: Router[_Route], scope: Scope, receive: Receive) -> Answer:
    verb, path = scope["method"], scope["raw_path"].decode("latin-1")
    if path == "/" and verb in ("GET", "HEAD"):
        return text_answer("Ok\n")  # what Google's emulator says to who asks whether it is there
    found = router.find(verb, path)
    if found is None:
        raise NotFound(f"the Pub/Sub API has nothing at {verb} {path[:200]}")
    route, values = found
    method = _unary(route)
    query = _query(scope["query_string"])
    body = await read_body(scope["headers"], receive)
    request = method.request()
    fill_request(request, route.rule.body, values, query, body)
    own_headers = [(name, value) for name, value in scope["headers"] if name.startswith(OWN) or name == TRACEPARENT]
    handling = method.call(request.SerializeToString() if method.raw else request, own_headers)
    response = await _while_connected(handling, receive)
    return json_answer(to_json(_message(route.rule, response), wants_integer_enums(query)))


def _unary(route: _Route) -> Method:
    if isinstance(route.method, Method):
        return route.method
    name = route.rule.method
    if isinstance(route.method, StreamMethod):
        raise Unsupported(name, "a stream has no REST form; use gRPC, or :pull")
    raise Unsupported(name, "is not offered by this broker")


def _query(text: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_QUERY_PARAMETERS)
    except ValueError as error:
        raise BadInput("query", f"has more than {MOST_QUERY_PARAMETERS} parameters") from error


async def _while_connected(handling: Awaitable[Any], receive: Receive) -> Any:
    """Ends a pull whose client is gone, as gRPC does; else it would lease messages to nobody."""
    work = asyncio.ensure_future(handling)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _message(rule: Rule, response: Any) -> Any:
    """Publish and Pull make their responses of the wire's own bytes, for gRPC's sake."""
    if not isinstance(response, bytes):
        return response
    return getattr(pubsub, f"{rule.method}Response").pb().FromString(response)
