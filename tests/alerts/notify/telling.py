"""Receivers whose channel is a list, over a real file of alerts, by a clock that tests move."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.matching import parse_matchers
from holdfast.alerts.notify.notification import Notification
from holdfast.alerts.notify.notifier import Notifier
from holdfast.alerts.notify.receiver import Receiver
from holdfast.alerts.notify.silences import QuietTime
from holdfast.stores.sqlite.alert_ledger import SqliteAlertLedger
from holdfast.stores.sqlite.alerts_schema import SCHEMA
from holdfast.stores.sqlite.database import Database
from holdfast.testing import ManualClock

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


class Heard:
    """A channel that keeps what it was sent. `answers` are what it says to the next ones; then it takes everything."""

    where = "here"

    def __init__(self) -> None:
        self.tried: list[Notification] = []
        self.taken: list[Notification] = []
        self.answers: list[NotSent | BaseException] = []
        self.hangs: asyncio.Event | None = None

    async def send(self, notification: Notification) -> NotSent | None:
        self.tried.append(notification)
        if self.hangs is not None:
            await self.hangs.wait()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        self.taken.append(notification)
        return None

    @property
    def told(self) -> list[tuple[str, int, int]]:
        """Kind, firing and resolved."""
        return [(one.kind, one.firing, one.resolved) for one in self.taken]


def receiver(heard: Heard, name: str = "ops", **changed: Any) -> Receiver:
    match = parse_matchers(changed.pop("match", ()))
    plain = Receiver(name, "webhook", heard, match, ("rule",), 10, MINUTE, 4 * HOUR, 20, True, DAY, joins=True)
    return replace(plain, **changed)


def alert(
    rule: str = "OldestUnacked", subscription: str = "a", severity: Severity = Severity.WARNING, at_ns: int = 0
) -> Alert:
    details = {"measured": "400 seconds", "limit": "5 minutes", "runbook": f"https://x.test/rb#{rule.lower()}"}
    return Alert(
        rule,
        severity,
        {"subscription": f"projects/local/subscriptions/{subscription}"},
        f"{subscription} is late",
        at_ns or 1_700_000_000_000_000_000,
        value=400.0,
        details={**details, "next": f"holdfast push status {subscription}"},
    )


class Telling:
    """One notifier after the other over one file."""

    def __init__(self, path: Path, *receivers: Receiver, quiet: Sequence[QuietTime] = ()) -> None:
        self.clock = ManualClock()
        self.receivers = receivers
        self.quiet = quiet
        self.path = path / "alerts.db"
        self.notifier: Notifier
        self._ids = itertools.count(1)
        self._database: Database | None = None

    async def start(self) -> Telling:
        self._database = await Database.open(self.path, SCHEMA)
        store = SqliteAlertLedger(self._database)
        self.notifier = Notifier(
            self.receivers,
            self.quiet,
            store,
            self.clock,
            make_id=lambda: f"ntf_{next(self._ids)}",
            spread=lambda: 0.0,
        )
        await self.notifier.resume()
        return self

    async def stop(self) -> None:
        """What it has saved is all that remains, as after a kill."""
        assert self._database
        await self._database.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def begin(self, *alerts: Alert) -> None:
        await self.notifier.accept(alerts)

    async def end(self, *alerts: Alert) -> None:
        await self.notifier.accept([replace(one, ended_at_ns=self.clock.now_ns()) for one in alerts])

    async def turn(self) -> None:
        for one in self.receivers:
            await self.notifier.turn(one.name)

    async def after(self, seconds: float) -> None:
        """Every receiver has its turn whenever something is due, until so much time has passed."""
        end_ns = self.clock.now_ns() + round(seconds * 1_000_000_000)
        while True:
            next_ns = min([await self.notifier.turn(one.name) for one in self.receivers], default=end_ns)
            left_ns = min(max(next_ns, self.clock.now_ns() + 1_000_000), end_ns) - self.clock.now_ns()
            if left_ns <= 0:
                return
            self.clock.advance(left_ns / 1_000_000_000)

    def counts(self) -> dict[tuple[str, ...], float]:
        family = self.notifier.families()[0]
        return {sample.labels: sample.value for sample in family.samples if sample.value}  # type: ignore[misc]


Start = Callable[..., Awaitable[Telling]]
