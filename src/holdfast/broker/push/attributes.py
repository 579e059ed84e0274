"""What one push subscription may set for itself, by attributes of its push configuration. Pub/Sub has no fields for
these; official clients can write attributes unchanged, and Pub/Sub's own are `x-goog-…`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import BadInput
from holdfast.model.resources import PushConfig
from holdfast.settings import PushSettings

CONCURRENCY = "x-holdfast-concurrency"
PER_SECOND = "x-holdfast-per-second"
CONFIRM = "x-holdfast-confirm"
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
        _truth(given, settings.confirm_endpoints),
    )


def _number(given: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    if name not in given:
        return default
    try:
        value = float(given[name])
    except ValueError:
        value = -1.0
    whole = name == CONCURRENCY
    if not low <= value <= high or (whole and value != int(value)):
        what = "a whole number" if whole else "a number"
        raise BadInput(f"push_config.attributes[{name!r}]", f"must be {what} from {low:g} to {high:g}")
    return value


def _truth(given: Mapping[str, str], default: bool) -> bool:
    if CONFIRM not in given:
        return default
    if given[CONFIRM] not in ("true", "false"):
        raise BadInput(f"push_config.attributes[{CONFIRM!r}]", "must be true or false")
    return given[CONFIRM] == "true"
