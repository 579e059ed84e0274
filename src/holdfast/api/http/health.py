"""GET /healthz: the process is alive. GET /readyz: all that it depends on answers, or who does not, and why.

A check is never asked twice at once, nor more often than once a second, however many ask; and whoever asks has an
answer in bounded time, also where a dependency hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.http")

# It raises when the dependency is not there. Cheap, and changes nothing.
Check = Callable[[], Awaitable[object]]

# Kubernetes waits one second by default and should be told to wait longer; load balancers wait five or more.
LONGEST_WAIT_SECONDS = 2.0
# An answer is good for so long.
GOOD_FOR_SECONDS = 1.0

OK = "ok"


def routes(checks: Mapping[str, Check]) -> list[Route]:
    """`checks` are what this process depends on, by name."""
    dependencies = {name: Dependency(name, check) for name, check in checks.items()}

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": OK})

    async def readyz(request: Request) -> Response:
        states = await asyncio.gather(*(dependency.state() for dependency in dependencies.values()))
        ready = all(state == OK for state in states)
        found = dict(zip(dependencies, states, strict=True))
        body = {"status": "ready" if ready else "not ready", "dependencies": found}
        return JSONResponse(body, status_code=200 if ready else 503)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class Dependency:
    def __init__(self, name: str, check: Check) -> None:
        self._name = name
        self._check = check
        self._asking: asyncio.Task[str] | None = None
        self._good_until = 0.0

    async def state(self) -> str:
        """OK, or why not."""
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or asking.cancelled() or (asking.done() and loop.time() >= self._good_until):
            self._asking = asking = asyncio.create_task(self._asked())
        done, _ = await asyncio.wait({asking}, timeout=LONGEST_WAIT_SECONDS)
        if not done:
            asking.cancel()  # not waited for: it may be where nothing can be cancelled
        if asking not in done or asking.cancelled():
            return f"no answer within {LONGEST_WAIT_SECONDS:g} s"
        return asking.result()

    async def _asked(self) -> str:
        state = await self._answer()
        self._good_until = asyncio.get_running_loop().time() + GOOD_FOR_SECONDS
        return state

    async def _answer(self) -> str:
        try:
            await self._check()
        except HoldfastError as error:
            return str(error)
        except Exception as error:
            log.exception("whether %s is there could not be told", self._name)
            return type(error).__name__  # its text is for nobody outside
        return OK
