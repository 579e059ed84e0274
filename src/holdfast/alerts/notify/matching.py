"""Which alerts are meant: every matcher must hold of an alert's labels, its rule and its severity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast.alerts.alert import Alert
from holdfast.alerts.selector import Matcher, Selector

RULE, SEVERITY = "rule", "severity"


def labels_of(alert: Alert) -> dict[str, str]:
    return {**alert.labels, RULE: alert.rule, SEVERITY: str(alert.severity)}


def all_hold(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(one.holds(labels.get(one.label, "")) for one in matchers)


def parse_matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """Each written as `severity="critical"`, with = != =~ or !~. ValueError says what is wrong."""
    return tuple(_parsed(text) for text in texts)


def _parsed(text: str) -> Matcher:
    # What is not in quotes is plain text: shells eat quotes.
    found = re.fullmatch(r'\s*(\w+)\s*(=~|!~|!=|=(?!~))\s*+(?!")(.*?)\s*', text, re.DOTALL)
    if found:
        try:
            return Matcher(found[1], found[2], found[3])
        except re.error as error:
            raise ValueError(f"has a pattern that is none: {found[3]!r}: {error}") from error
    matchers = Selector.parse(f"alert{{{text}}}").matchers
    if len(matchers) != 1:
        raise ValueError('must be one condition, such as severity="critical"')
    return matchers[0]
