"""Alerts: whether this process judges the rules, how often, and what differs from their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.settings.checks import between, subscriptions
from holdfast.settings.setting import Texts, setting


@dataclass(frozen=True, slots=True)
class AlertSettings:
    enabled: bool = setting(
        True, "Judge the rules in this process. Where Prometheus or Google Cloud judges them, nobody else need to."
    )
    interval_seconds: float = setting(
        15.0,
        "How often. Less often tells people later; more often costs a few milliseconds each time.",
        check=between(1, 60),
    )
    critical_subscriptions: Sequence[str] = setting(
        Texts(),
        "The subscriptions that matter most, by id or full path: rules for critical subscriptions alone keep to these. "
        "Empty: all are critical.",
        check=subscriptions,
    )
    runbook_url: str = setting(
        "docs/runbook.md", "The page that alerts point to, each at its own section. Put in where your people read it."
    )
    rules: Sequence[Mapping[str, Any]] = setting(
        (),
        "What differs from the table of rules: each table names a `rule` and changes it, or describes one of your own; "
        "[Alerts](alerts.md#your-own) tells how.",
    )
    receivers: Sequence[Mapping[str, Any]] = setting(
        (),
        "Who is told: each table is a receiver with a `name` and a `kind`: slack, pagerduty, webhook, email or log; "
        "[Alerts](alerts.md#receivers) tells how. Secrets come from the environment or files. None: the log tells.",
    )
    quiet: Sequence[Mapping[str, Any]] = setting(
        (),
        "Times of the week at which nobody is told, each with `from` and `to`; [Alerts](alerts.md#silences) tells how.",
    )
