"""Which series of a metric are meant, written as in PromQL: `name{label="value",other=~"a|b"}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_SELECTOR = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class Matcher:
    """`operator` is one of = != =~ !~. A pattern must fit the whole value."""

    label: str
    operator: str
    value: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """re.error for a pattern that is none."""
        is_pattern = self.operator.endswith("~")
        object.__setattr__(self, "_pattern", re.compile(self.value if is_pattern else re.escape(self.value)))

    def holds(self, found: str) -> bool:
        return bool(self._pattern.fullmatch(found)) != self.operator.startswith("!")

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Selector:
    metric: str
    matchers: tuple[Matcher, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selector:
        """ValueError, with what is wrong in words."""
        found = _SELECTOR.fullmatch(text)
        if not found:
            raise ValueError('must be a metric, perhaps with labels, such as name{label="value"}')
        matchers: list[Matcher] = []
        rest = (found[2] or "").strip()
        while rest:
            one = _MATCHER.match(rest)
            if not one:
                raise ValueError(f'has labels that cannot be read at {rest!r}; write label="value", with = != =~ or !~')
            matchers.append(_matcher(one[1], one[2], one[3]))
            rest = rest[one.end() :].strip()
        return cls(found[1], tuple(matchers))

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(one.holds(labels.get(one.label, "")) for one in self.matchers)

    def with_(self, *matchers: Matcher) -> Selector:
        return replace(self, matchers=(*self.matchers, *matchers))

    def __str__(self) -> str:
        return f"{self.metric}{{{','.join(map(str, self.matchers))}}}" if self.matchers else self.metric


def _matcher(label: str, operator: str, quoted: str) -> Matcher:
    try:
        return Matcher(label, operator, json.loads(quoted))
    except json.JSONDecodeError as error:
        raise ValueError(f"has a value that cannot be read: {quoted}") from error
    except re.error as error:
        raise ValueError(f"has a pattern that is none: {quoted}: {error}") from error
