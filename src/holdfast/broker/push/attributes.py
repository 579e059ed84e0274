"""What one push subscription may set for itself, by attributes of its push configuration. Pub/Sub has no fields for
these; official clients can write attributes unchanged, and Pub/Sub's own are `x-goog-…`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import BadInput
from holdfast.model.resources import PushConfig
from holdfast.settings import PushSettings

CONCURRENCY = "x-holdfast-concurrency"
PER_SECOND = "x-holdfast-per-second"
CONFIRM = "x-holdfast-confirm"
_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
ALL = frozenset({CONCURRENCY, PER_SECOND, CONFIRM})


@dataclass(frozen=True, slots=True)
class PushLimits:
    concurrency: int
    per_second: float  # 0: no limit
    confirm: bool


def limits_of(push: PushConfig, settings: PushSettings) -> PushLimits:
    """Raises BadInput, naming the attribute, where a value is none."""
    given = push.attributes
    return PushLimits(
        int(_number(given, CONCURRENCY, settings.concurrency, 1, 10_000)),
        _number(given, PER_SECOND, settings.per_second, 0.001, 1_000_000),
        # What the operator asks of all, none can waive.
        _truth(given) or settings.confirm_endpoints,
    )


def _number(given: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    if name not in given:
        return default
    whole = name == CONCURRENCY
    value = float(given[name]) if (_WHOLE if whole else _DECIMAL).fullmatch(given[name]) else -1.0
    if not low <= value <= high:
        what = "a whole number" if whole else "a number"
        raise BadInput(f"push_config.attributes[{name!r}]", f"must be {what} from {low:g} to {high:g}")
    return value


def _truth(given: Mapping[str, str]) -> bool:
    if given.get(CONFIRM, "false") not in ("true", "false"):
        raise BadInput(f"push_config.attributes[{CONFIRM!r}]", "must be true or false")
    return given.get(CONFIRM) == "true"
