"""A process that watches itself: it judges the alert rules by its own metrics, and tells people."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.routing import Route

from holdfast.alerts.alert import AlertSink
from holdfast.alerts.evaluator import Evaluator
from holdfast.alerts.log_sink import LogSink
from holdfast.alerts.notify.board import Board
from holdfast.alerts.notify.notifier import Notifier
from holdfast.alerts.notify.quiet_times import quiet_times
from holdfast.alerts.notify.reading import Reading, has_log
from holdfast.alerts.sinks import Sinks
from holdfast.alerts.tuning import rules_from
from holdfast.api.http import alert_rules
from holdfast.api.http import alerts as alerts_api
from holdfast.clock import Clock
from holdfast.errors import FailedPrecondition, StorageUnavailable
from holdfast.metrics.registry import MetricsRegistry
from holdfast.outgoing.client import OutgoingClient
from holdfast.settings import Settings
from holdfast.stores.sqlite.alert_ledger import SqliteAlertLedger
from holdfast.stores.sqlite.alert_states import SqliteAlertStates
from holdfast.telemetry import JUDGE_SOON
from holdfast.wiring.addresses import address_guard
from holdfast.wiring.lifetimes import background, entered
from holdfast.wiring.stores import open_alerts


class Watch:
    """Made before anything is opened: SettingError where the settings of alerts are wrong. `part` is the command,
    `host` where the process listens."""

    def __init__(self, settings: Settings, clock: Clock, part: str, host: str) -> None:
        self._settings = settings
        self._clock = clock
        self._part = part
        self._board: Board | None = None
        self._evaluator: Evaluator | None = None
        alerts = settings.alerts
        self._rules = rules_from(alerts, settings.general.project)
        # As push does: the addresses that may be called, and the authorities that are trusted, are the process's.
        self._client = OutgoingClient(address_guard(settings, host), ca_file=settings.push.ca_file)
        self._receivers = Reading(self._client, clock, os.environ).receivers(alerts.receivers)
        self._quiet_times = quiet_times(alerts.quiet)

    @property
    def routes(self) -> list[Route]:
        rules = alert_rules.routes(self._rules, self._settings.alerts.runbook_url)
        return [*rules, *alerts_api.routes(self._asked, self._clock)]

    def look_soon(self) -> None:
        """Something has happened that people should not hear of an interval later."""
        if self._evaluator is not None:
            self._evaluator.look_soon()

    def _asked(self) -> Board:
        if not self._settings.alerts.enabled:
            raise FailedPrecondition("alerts.enabled is false here: no alerts are judged in this process")
        if self._board is None:
            raise StorageUnavailable("this process is starting, or stopping")
        return self._board

    @asynccontextmanager
    async def running(self, registry: MetricsRegistry) -> AsyncIterator[None]:
        """Every source of metrics is registered by now, or soon: the first look is an interval away."""
        alerts = self._settings.alerts
        async with AsyncExitStack() as stack:
            await entered(stack, self._client)
            if not alerts.enabled:
                yield
                return
            database = await entered(stack, await open_alerts(self._settings, self._part))
            notifier = Notifier(self._receivers, self._quiet_times, SqliteAlertLedger(database), self._clock)
            sinks: list[AlertSink] = [notifier] if has_log(alerts.receivers) else [LogSink(), notifier]
            self._evaluator = evaluator = Evaluator(
                self._rules,
                registry.collect,
                SqliteAlertStates(database),
                Sinks(*sinks),
                self._clock,
                alerts.interval_seconds,
                alerts.runbook_url,
            )
            await notifier.resume()
            await evaluator.resume(notifier.ledger.open_alerts())
            await notifier.accept(evaluator.firing())  # of a process that had no receivers
            registry.register(evaluator.families)
            registry.register(notifier.families)
            self._board = Board(evaluator, notifier, self._clock)
            await stack.enter_async_context(background(notifier.run()))
            await stack.enter_async_context(background(evaluator.run()))
            with _LookSoon(self.look_soon):
                yield
            self._board = None


class _LookSoon(logging.Handler):
    """A line that says that somebody must act is reason to judge the rules at once. Any thread may log it."""

    def __init__(self, look_soon: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._look_soon = look_soon
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        logging.getLogger("holdfast").addHandler(self)

    def __exit__(self, *error: object) -> None:
        logging.getLogger("holdfast").removeHandler(self)
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        is_urgent = record.levelno >= logging.CRITICAL or hasattr(record, JUDGE_SOON)
        if is_urgent and not record.name.startswith("holdfast.alerts"):
            self._loop.call_soon_threadsafe(self._look_soon)
