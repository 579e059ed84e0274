"""The rules as a file for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.alerts.durations import written
from holdfast.alerts.promql import condition
from holdfast.alerts.rule import Rule
from holdfast.alerts.words import summary

# Other software has rules too.
PREFIX = "Holdfast"

_HEAD = """\
# The alerts of Holdfast for Prometheus: `rule_files` in prometheus.yml. Made by `holdfast alerts rules --format
# prometheus`; change holdfast.toml instead and make it again.
groups:
  - name: holdfast
    rules:
"""


def rules_file(rules: Sequence[Rule], runbook_url: str) -> str:
    return _HEAD + "".join(_written(rule, runbook_url) for rule in rules)


def texts(rule: Rule, runbook_url: str) -> dict[str, str]:
    labels = {label: f"{{{{ $labels.{label} }}}}" for label in rule.by}
    return {"summary": summary(rule, labels), "runbook_url": f"{runbook_url}#{rule.runbook}"}


def _written(rule: Rule, runbook_url: str) -> str:
    lines = [f"      - alert: {PREFIX}{rule.name}", f"        expr: {_quoted(condition(rule))}"]
    if rule.for_seconds:
        lines.append(f"        for: {written(rule.for_seconds)}")
    lines += ["        labels:", f"          severity: {rule.severity}", "        annotations:"]
    lines += [f"          {name}: {_quoted(text)}" for name, text in texts(rule, runbook_url).items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    """A JSON string is one of YAML too. In single quotes fewer characters need a backslash."""
    plain = text.isprintable() and "\\" not in text
    return "'" + text.replace("'", "''") + "'" if plain else json.dumps(text, ensure_ascii=False)
