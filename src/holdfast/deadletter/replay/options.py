"""Reads the options of a replay job from JSON, and writes them as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.deadletter.replay.jobs import Options, Target
from holdfast.errors import BadInput
from holdfast.model.names import check_topic, topic_path

FASTEST = 100_000.0
MOST = 1_000_000

NAMES = ("target", "topic", "perSecond", "concurrency", "canary", "stopAbove", "stopAfter")


def options_from_json(form: Any, project: str, defaults: Options) -> Options:
    """Raises BadInput with the name of what is unknown or has a bad value."""
    if not isinstance(form, Mapping):
        raise BadInput("options", "must be a JSON object")
    for name in form:
        if name not in NAMES:
            raise BadInput(str(name)[:64], f"is not known here; options are {', '.join(NAMES)}")
    target = _target(form.get("target", str(defaults.target)))
    bounds = _for_shadow() if target is Target.SHADOW else defaults
    return Options(
        target=target,
        topic=_topic(form, target, project),
        per_second=_number(form, "perSecond", bounds.per_second, FASTEST),
        concurrency=_whole(form, "concurrency", bounds.concurrency),
        canary=_whole(form, "canary", bounds.canary),
        stop_above=_number(form, "stopAbove", bounds.stop_above, 1.0),
        stop_after=_whole(form, "stopAfter", bounds.stop_after),
    )


def options_to_json(options: Options) -> dict[str, Any]:
    return {
        "target": str(options.target),
        **({"topic": options.topic} if options.topic else {}),
        "perSecond": options.per_second,
        "concurrency": options.concurrency,
        "canary": options.canary,
        "stopAbove": options.stop_above,
        "stopAfter": options.stop_after,
    }


def _for_shadow() -> Options:
    """Nothing is sent: there is nothing to be careful about."""
    return Options(Target.SHADOW, per_second=0, concurrency=0, canary=0, stop_above=1.0)


def _target(value: Any) -> Target:
    try:
        return Target(value)
    except ValueError:
        raise BadInput("target", f"must be one of {', '.join(Target)}, not {str(value)[:64]!r}") from None


def _topic(form: Mapping[str, Any], target: Target, project: str) -> str:
    topic = form.get("topic", "")
    if target is not Target.TOPIC:
        if topic:
            raise BadInput("topic", f"belongs to the target {Target.TOPIC} alone")
        return ""
    if not isinstance(topic, str) or not topic:
        raise BadInput("topic", f"must name the topic of the target {Target.TOPIC}")
    path = topic_path(project, topic)
    check_topic("topic", path)
    return path


def _number(form: Mapping[str, Any], name: str, default: float, most: float) -> float:
    return float(_checked(form, name, default, most, math.isfinite))


def _whole(form: Mapping[str, Any], name: str, default: int) -> int:
    return int(_checked(form, name, default, MOST, lambda value: value == int(value)))


def _checked(form: Mapping[str, Any], name: str, default: float, most: float, fits: Callable[[float], bool]) -> float:
    value = form.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not (0 <= value <= most and fits(value)):
        what = "a whole number" if isinstance(default, int) else "a number"
        raise BadInput(name, f"must be {what} from 0 to {most:g}, not {str(value)[:64]!r}")
    return value
