"""The rules as the user wants them: the table, what `[[alerts.rules]]` changes of it, and rules of their own.

[[alerts.rules]]
rule = "OldestUnacked"
threshold = 600
for = "2m"

[[alerts.rules]]
rule = "OrdersPileUp"
measure = "level"
of = 'holdfast_broker_backlog{subscription=~".*/orders[.].*"}'
threshold = 1000
severity = "critical"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.alerts import tables
from holdfast.alerts.alert import Severity
from holdfast.alerts.measures import measure_from
from holdfast.alerts.rule import Comparison, Rule, Share, narrowed
from holdfast.alerts.selector import Matcher
from holdfast.alerts.table import RULES
from holdfast.alerts.tables import Table
from holdfast.alerts.words import FOR, LIMIT, WINDOW
from holdfast.errors import SettingError
from holdfast.model.names import subscription_path
from holdfast.settings import AlertSettings

KEY = "alerts.rules"

ALL, CRITICAL = "all", "critical"

_SUBSCRIPTION = "subscription"
_COMPARISONS = [str(one) for one in Comparison]
# What every table may have. What measures something is for rules of one's own.
_CHANGES = (
    "rule",
    "enabled",
    "severity",
    "threshold",
    "compare",
    "for",
    "subscriptions",
    "summary",
    "runbook",
    "command",
)


def rules_from(settings: AlertSettings, project: str) -> list[Rule]:
    """Those that are judged. SettingError that names the table and its key."""
    rules = {rule.name: rule for rule in RULES}
    subscriptions: dict[str, object] = {rule.name: CRITICAL for rule in RULES if rule.critical_only}
    off: set[str] = set()
    named: set[str] = set()
    for number, raw in enumerate(settings.rules):
        table = Table(f"{KEY}[{number}]", raw)
        name = table.text("rule")
        if name in named:
            raise SettingError(table.key("rule"), name, "has a table already; put all of it into one")
        named.add(name)
        known = rules.get(name)
        rules[name] = _changed(table, known) if known else _own(table, name)
        if "subscriptions" in raw:
            subscriptions[name] = _subscriptions(table, rules[name])
        if not table.flag("enabled", default=True):
            off.add(name)
    paths = [subscription_path(project, one) for one in settings.critical_subscriptions]
    return [
        _kept_to(rule, subscriptions.get(rule.name, ALL), paths, project)
        for rule in rules.values()
        if rule.name not in off
    ]


def _changed(table: Table, rule: Rule) -> Rule:
    table.only(_CHANGES, because=f"{rule.name} is in the table of rules, so what it measures stays; ")
    return _with_limits(table, rule)


def _own(table: Table, name: str) -> Rule:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{2,60}", name):
        raise SettingError(table.key("rule"), name, "must be letters and digits, a capital letter first")
    if "measure" not in table.raw:
        close = tables.close_to(name, [rule.name for rule in RULES])
        allowed = f"is not in the table of rules{close}; one of your own needs `measure` too"
        raise SettingError(table.key("rule"), name, allowed)
    measure, by = measure_from(table, more=_CHANGES)
    threshold = table.number("threshold")
    about = "".join(f" of {{{label}}}" for label in by)
    rule = Rule(name, Severity.WARNING, measure, threshold, f"{name}{about}", "your-own-rules", by=by)
    return _with_limits(table, rule)


def _with_limits(table: Table, rule: Rule) -> Rule:
    threshold = table.number("threshold", default=rule.threshold)
    if isinstance(rule.measure, Share) and not 0 <= threshold <= 1:
        raise SettingError(table.key("threshold"), threshold, "must be from 0 to 1: it is a share")
    summary = _naming(table, "summary", rule.summary, (*rule.by, LIMIT, FOR, WINDOW))
    command = _naming(table, "command", rule.command, rule.by) if "command" in table.raw else rule.command
    return replace(
        rule,
        severity=Severity(table.choice("severity", [str(one) for one in Severity], default=str(rule.severity))),
        threshold=threshold,
        comparison=Comparison(table.choice("compare", _COMPARISONS, default=str(rule.comparison))),
        for_seconds=table.duration("for", default=rule.for_seconds),
        summary=summary,
        runbook=table.text("runbook", default=rule.runbook),
        command=command,
    )


def _naming(table: Table, key: str, default: str, known: Sequence[str]) -> str:
    """A text that may name {label}."""
    text = table.text(key, default=default)
    for label in re.findall(r"{(.*?)}", text):
        if label not in known:
            raise SettingError(table.key(key), text, f"names {{{label}}}; it may name {', '.join(known) or 'none'}")
    return text


def _subscriptions(table: Table, rule: Rule) -> str | Sequence[str]:
    """all, critical, or some of them."""
    if _SUBSCRIPTION not in rule.by:
        raise SettingError(
            table.key("subscriptions"), table.raw["subscriptions"], f"{rule.name} does not tell subscriptions apart"
        )
    given = table.raw["subscriptions"]
    if given in (ALL, CRITICAL):
        return str(given)
    return table.texts("subscriptions", "must be all, critical, or a list of subscriptions")


def _kept_to(rule: Rule, wanted: Any, critical: Sequence[str], project: str) -> Rule:
    rule = replace(rule, critical_only=wanted == CRITICAL)
    if wanted == ALL:
        return rule
    paths = critical if wanted == CRITICAL else [subscription_path(project, one) for one in wanted]
    if not paths:
        return rule
    pattern = "|".join(re.escape(path) for path in paths)
    return replace(rule, measure=narrowed(rule.measure, Matcher(_SUBSCRIPTION, "=~", pattern)))
