"""The log as a receiver: for who collects logs and wants them gathered and silenced as everything else is."""

from __future__ import annotations

import logging

from holdfast.alerts.alert import Severity
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.notification import Notification

log = logging.getLogger("holdfast.alerts")


class LogChannel:
    where = "log"

    async def send(self, notification: Notification) -> NotSent | None:
        urgent = logging.CRITICAL if notification.severity is Severity.CRITICAL else logging.WARNING
        fields = {
            "notification": notification.id,
            "state": "firing" if notification.firing else "resolved",
            "firing": notification.firing,
            "resolved": notification.resolved,
            **notification.group,
            "alerts": [alert.summary for alert in notification.alerts[:10]],
        }
        log.log(urgent if notification.firing else logging.INFO, notification.title, extra={"fields": fields})
        return None
