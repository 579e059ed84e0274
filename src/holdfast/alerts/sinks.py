"""Several who tell people, as one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.alerts.alert import Alert, AlertSink


class Sinks:
    """In their order: where one of them fails, all are told again."""

    def __init__(self, *sinks: AlertSink) -> None:
        self._sinks = sinks

    async def accept(self, alerts: Sequence[Alert]) -> None:
        for sink in self._sinks:
            await sink.accept(alerts)
