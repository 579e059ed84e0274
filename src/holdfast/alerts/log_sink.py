"""Tells people by the log: for who has no other way yet, or collects logs anyway."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.alerts.alert import Alert, Severity

log = logging.getLogger("holdfast.alerts")

_LEVELS = {Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}


class LogSink:
    async def accept(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            over = alert.ended_at_ns is not None
            level = logging.INFO if over else _LEVELS[alert.severity]
            message = f"alert is over: {alert.summary}" if over else alert.summary
            log.log(level, message, extra={"fields": _fields(alert)})


def _fields(alert: Alert) -> dict[str, object]:
    value = None if alert.value is None else round(alert.value, 6)
    return {
        "alert": alert.rule,
        "alert_severity": str(alert.severity),
        "state": "firing" if alert.ended_at_ns is None else "resolved",
        **alert.labels,
        "value": value,
        **alert.details,
    }
