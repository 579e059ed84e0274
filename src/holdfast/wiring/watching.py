"""A process that watches itself: it judges the alert rules by its own metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.routing import Route

from holdfast.alerts.alert import AlertSink
from holdfast.alerts.evaluator import Evaluator
from holdfast.alerts.log_sink import LogSink
from holdfast.alerts.rule import Rule
from holdfast.alerts.tuning import rules_from
from holdfast.api.http import alert_rules
from holdfast.clock import Clock
from holdfast.metrics.registry import MetricsRegistry
from holdfast.settings import Settings
from holdfast.stores.sqlite.alert_states import SqliteAlertStates
from holdfast.wiring.lifetimes import background
from holdfast.wiring.stores import open_alerts


@asynccontextmanager
async def watching(
    settings: Settings, clock: Clock, registry: MetricsRegistry, part: str, sink: AlertSink | None = None
) -> AsyncIterator[None]:
    """`part` is the command. Without a sink, people are told by the log. Every source of metrics is registered by now,
    or soon: the first look is an interval away."""
    if not settings.alerts.enabled:
        yield
        return

    database = await open_alerts(settings, part)
    try:
        evaluator = Evaluator(
            judged_rules(settings),
            registry.collect,
            SqliteAlertStates(database),
            sink or LogSink(),
            clock,
            settings.alerts.interval_seconds,
            settings.alerts.runbook_url,
        )
        await evaluator.resume()
        registry.register(evaluator.families)
        async with background(evaluator.run()):
            yield
    finally:
        await database.close()


def judged_rules(settings: Settings) -> list[Rule]:
    return rules_from(settings.alerts, settings.general.project)


def rules_routes(settings: Settings) -> list[Route]:
    """SettingError where the rules of the settings are wrong: asked for before anything is opened."""
    return [*alert_rules.routes(judged_rules(settings), settings.alerts.runbook_url)]
