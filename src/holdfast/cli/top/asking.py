"""Asks one process: its metrics, and of its API what metrics do not tell, such as why a delivery pauses."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from holdfast.cli.top.exposition import Samples, read
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.metrics import broker, desk, process

# One that hangs must not hold up the view for long.
ANSWER_SECONDS = 3.0

MOST_GROUPS = 5
MOST_REPLAYS = 5
UNDER_WAY = ("canary", "running", "paused")

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Look:
    """What a process said at one time, by this machine's steady clock. None where it has no such part."""

    at: float
    metrics: Mapping[str, Samples]
    push: Rows | None = None
    groups: Rows | None = None
    replays: Rows | None = None
    alerts: Rows | None = None

    def of(self, name: str) -> Samples:
        return self.metrics.get(name, {})

    @property
    def version_and_part(self) -> tuple[str, str]:
        labels = next(iter(self.of(process.BUILD.name)), ("", ""))
        return (labels[0], labels[1]) if len(labels) == 2 else ("", "")

    @property
    def started(self) -> float:
        return self.of(process.STARTED.name).get((), 0.0)


async def look(session: aiohttp.ClientSession, url: str) -> Look:
    """StorageUnavailable where no Holdfast answers; BadInput where `url` is none."""
    metrics = await _metrics(session, url)
    if process.BUILD.name not in metrics:
        raise StorageUnavailable("it has metrics, but they are not those of a Holdfast process")
    has_broker, has_desk = broker.BACKLOG.name in metrics, desk.REPLAYED.name in metrics
    push, groups, replays, alerts = await asyncio.gather(
        _rows(session, url, "/api/v1/push", "subscriptions", has_broker, pageSize=1000),
        _rows(session, url, "/api/v1/groups", "groups", has_desk, state=("open", "reopened"), pageSize=MOST_GROUPS),
        _rows(session, url, "/api/v1/replays", "replays", has_desk, state=UNDER_WAY, pageSize=MOST_REPLAYS),
        _rows(session, url, "/api/v1/alerts", "alerts", True),
    )
    return Look(time.monotonic(), metrics, push, groups, replays, alerts)


async def _metrics(session: aiohttp.ClientSession, url: str) -> Mapping[str, Samples]:
    try:
        async with session.get(f"{url.rstrip('/')}/metrics", headers={"Accept": "text/plain"}) as response:
            if response.status != 200:
                raise StorageUnavailable(f"/metrics answers {response.status}")
            return read(await response.text())
    except aiohttp.InvalidURL as error:
        raise BadInput("--url", f"{url!r} is not a URL such as http://127.0.0.1:8080") from error
    except TimeoutError as error:
        raise StorageUnavailable(f"no answer within {ANSWER_SECONDS:g} s") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise StorageUnavailable(_told(error)) from error


async def _rows(
    session: aiohttp.ClientSession, url: str, path: str, name: str, has_it: bool, **query: object
) -> Rows | None:
    """What cannot be had is left out: the metrics are the main thing."""
    if not has_it:
        return None
    pairs = [
        (key, str(one)) for key, value in query.items() for one in (value if isinstance(value, tuple) else (value,))
    ]
    try:
        async with session.get(url.rstrip("/") + path, params=pairs) as response:
            if response.status != 200:
                return None
            rows: Rows = (await response.json(content_type=None))[name]
            return rows if isinstance(rows, list) else None
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
        return None


def _told(error: Exception) -> str:
    """In few words: it is one line of a screen."""
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
