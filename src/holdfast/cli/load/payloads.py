"""What the messages say: a payload for each topic that the materializer knows, or objects from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import BadInput
from holdfast.model.strict_json import parse_strict_json
from holdfast.model.timestamps import format_rfc3339

Payload = Callable[[int, int], bytes]
"""The data of the message of that number, sent at that time (nanoseconds since 1970)."""

Fields = dict[str, Any]
Shape = Callable[[random.Random, int], Fields]
"""The fields of one event of its kind; gets how many different things (services, symbols, pipelines) there are."""

_REGIONS = ("europe-west1", "us-central1", "asia-east1")
_STATUSES = ("ok", "ok", "ok", "ok", "degraded", "down")
_PADDING = "padding"


def _system_event(chance: random.Random, things: int) -> Fields:
    return _state("service", chance, things)


def _heartbeat(chance: random.Random, things: int) -> Fields:
    return _state("pipelineId", chance, things)


def _state(name: str, chance: random.Random, things: int) -> Fields:
    number = chance.randrange(things)
    return {
        name: f"load-{number:04d}",
        "status": chance.choice(_STATUSES),
        "version": f"1.{number % 10}.0",
        # It stays where it is.
        "region": _REGIONS[number % len(_REGIONS)],
    }


def _tick(chance: random.Random, things: int) -> Fields:
    return {
        "symbol": _symbol(chance, things),
        "price": round(chance.uniform(10, 500), 2),
        "size": chance.randrange(1, 1000),
    }


def _bar(chance: random.Random, things: int) -> Fields:
    low, high = sorted((round(chance.uniform(10, 500), 2), round(chance.uniform(10, 500), 2)))
    prices = {"open": low, "high": high, "low": low, "close": high}
    return {"symbol": _symbol(chance, things), "timeframe": "1m", **prices, "volume": chance.randrange(1, 100_000)}


def _signal(chance: random.Random, things: int) -> Fields:
    return {
        "symbol": _symbol(chance, things),
        "strategy": chance.choice(("mean-reversion", "momentum", "breakout")),
        "action": chance.choice(("BUY", "SELL", "HOLD")),
    }


def _symbol(chance: random.Random, things: int) -> str:
    return f"LOAD{chance.randrange(things):04d}"


SHAPES: dict[str, Shape] = {
    "market-ticks": _tick,
    "market-bars-1m": _bar,
    "trade-signals": _signal,
    "ingest-heartbeat": _heartbeat,
}


def made_up(topic: str, system_events_topic: str, *, things: int, least_bytes: int, run: str, seed: int) -> Payload:
    """Raises BadInput for a topic whose events we cannot make up."""
    shape = _system_event if topic == system_events_topic else SHAPES.get(topic)
    if shape is None:
        known = ", ".join([system_events_topic, *SHAPES])
        raise BadInput("--topic", f"{topic!r} has no payload of its own: give --payload FILE, or one of {known}")
    chance = random.Random(seed)

    def payload(number: int, now_ns: int) -> bytes:
        when = format_rfc3339(now_ns)
        fields = shape(chance, things) | {"producedAt": when, "sequence": number, "eventId": f"load-{run}-{number}"}
        if shape is _bar:
            fields["start"] = when
        return _padded(fields, least_bytes)

    return payload


def from_file(path: Path) -> Payload:
    """One JSON object, or one on each line, in turn. Raises BadInput that names the line."""
    objects = _objects(path)

    def payload(number: int, now_ns: int) -> bytes:
        return objects[number % len(objects)]

    return payload


def _padded(fields: Fields, least_bytes: int) -> bytes:
    data = _compact(fields)
    missing = least_bytes - len(data)
    if missing <= 0:
        return data
    return _compact({**fields, _PADDING: "x" * max(missing - len(f',"{_PADDING}":""'), 0)})


def _objects(path: Path) -> Sequence[bytes]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput("--payload", f"cannot read {str(path)!r}: {error.strerror}") from error
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise BadInput("--payload", f"{str(path)!r} is empty")
    if len(lines) > 1 and _is_object(text):
        return [text.strip()]  # one object over several lines
    for number, line in lines:
        _check_object(f"line {number}", line)
    return [line.strip() for _, line in lines]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(parse_strict_json(text), dict)
    except ValueError:
        return False


def _check_object(where: str, text: bytes) -> None:
    try:
        value = parse_strict_json(text)
    except ValueError as error:
        raise BadInput("--payload", f"{where} {error}") from error
    if not isinstance(value, dict):
        raise BadInput("--payload", f"{where} is not a JSON object")


_encoder = json.JSONEncoder(separators=(",", ":"))


def _compact(fields: Fields) -> bytes:
    return _encoder.encode(fields).encode()
