"""A handler that waits, on a thread of its own.

Not on the threads that asyncio keeps: those are few on a small machine, others use them too, and a process does not end
before each of them has. A handler that hangs must cost no more than its own message.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def on_own_thread(name: str, call: Callable[[], T]) -> T:
    """What `call` gives or raises. It goes on when nobody waits for it any more, but not beyond the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = context.run(call)
        except StopIteration as error:
            # A future refuses it, and whoever waits would wait for ever. Coroutines turn it into this too.
            instead = RuntimeError(f"{name} raised StopIteration")
            instead.__cause__ = error
            settle = _failing(done, instead)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            settle = _failing(done, error)
        else:
            settle = _ending(done, result)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


def _ending(done: asyncio.Future[T], result: T) -> Callable[[], None]:
    def settle() -> None:
        if not done.done():
            done.set_result(result)

    return settle


def _failing(done: asyncio.Future[T], error: BaseException) -> Callable[[], None]:
    def settle() -> None:
        if not done.done():
            done.set_exception(error)

    return settle
