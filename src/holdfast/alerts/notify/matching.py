"""Which alerts are meant: every matcher must hold of an alert's labels, its rule and its severity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast.alerts.alert import Alert
from holdfast.alerts.selector import Matcher, Selector

# Python tries every way to share a text out among a pattern's repetitions and groups. With three that is quick for any
# label; with more, or with a repetition inside of another, it may last for years, while nothing else is done.
MOST_CHOICES = 3
_CHOICES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\)[*+{])|(\((?:\?:)?|[*+{?])", re.DOTALL)

RULE, SEVERITY = "rule", "severity"


def labels_of(alert: Alert) -> dict[str, str]:
    return {**alert.labels, RULE: alert.rule, SEVERITY: str(alert.severity)}


def all_hold(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(one.holds(labels.get(one.label, "")) for one in matchers)


def parse_matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    """Each written as `severity="critical"`, with = != =~ or !~. ValueError says what is wrong."""
    return tuple(_parsed(text) for text in texts)


def check_quick(matchers: Iterable[Matcher]) -> None:
    """For patterns that anybody may send. ValueError where one could hold up everything else."""
    for one in matchers:
        found = [*_CHOICES.finditer(one.value)] if one.operator.endswith("~") else []
        if any(choice[1] for choice in found) or sum(bool(choice[2]) for choice in found) > MOST_CHOICES:
            allowed = f"at most {MOST_CHOICES} repetitions and groups, and no group that is repeated"
            raise ValueError(f"has a pattern that may take too long: {one.value[:64]!r}; a silence may have {allowed}")


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
