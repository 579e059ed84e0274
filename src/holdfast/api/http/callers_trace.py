"""Around an ASGI application: what it does belongs to the trace that its caller tells in `traceparent`."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.tracing.context import HEADER, checked
from holdfast.tracing.traces import Traces

_HEADER = HEADER.encode()


class CallersTrace:
    """Where the program around us has begun a span for the request, that one stays: it knows the caller's."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = checked(dict(scope["headers"]).get(_HEADER, b"").decode("latin-1"))
        if not caller or self._traces.current():
            await self._app(scope, receive, send)
            return
        with self._traces.within(caller):
            await self._app(scope, receive, send)
