"""What the documents must be, worked out from the messages alone, one after the other, by rules written down twice:
here, and in Holdfast. Nothing here imports Holdfast.

The rules. The greatest event by (event time, sequence, publish time, message id) is the one a document shows; what an
event lacks counts as the lowest, and a sequence of 0 as none. Events with the same id, or without one and with the same
identity fields, are one event, and count once.

One thing the messages do not decide. Of several messages that carry one event, the first to be applied stands for it,
with its own message id and publish time, and which one that is depends on the race. The answers tell it: whichever
was answered "applied" or "stale_ignored". Where that answer was lost with a killed worker, any of them may stand for
the event, and every document that follows from one of them is right; but only from one, where their documents differ.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

ENV = "local"
REGION = "local"
TOPICS_OF_SUBSCRIPTIONS = {
    "system.events.materializer": "system.events",
    "market-ticks.materializer": "market-ticks",
    "market-bars-1m.materializer": "market-bars-1m",
    "trade-signals.materializer": "trade-signals",
    "ingest-heartbeat.materializer": "ingest-heartbeat",
    "orders-of-the-proof": "orders",
}
EVENT_TIMES = ("producedAt", "publishedAt", "timestamp", "ts", "time")
STATES = ("system.events", "ingest-heartbeat")
NAMES = ("pipelineId", "pipeline_id", "pipeline", "service")  # of what reports its state
CLOCK_FIELDS = ("ingestedAt",)  # of the moment of writing: no event tells them

Fields = dict[str, Any]
Order = tuple[int, int, int, str]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """What one message does if it is the one that stands for its event. `numbers` are added up, the rest is shown."""

    path: str
    fields: Fields
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """One message, understood."""

    number: int
    message_id: str
    key: Key
    order: Order
    effects: Sequence[Effect]


class Oracle:
    def __init__(self, bodies: Sequence[bytes]) -> None:
        self.readings = [read(number, body) for number, body in enumerate(bodies)]
        self._copies: dict[Key, list[Reading]] = defaultdict(list)
        self._events: dict[str, dict[Key, list[tuple[Reading, Effect]]]] = defaultdict(lambda: defaultdict(list))
        for reading in self.readings:
            self._copies[reading.key].append(reading)
            for effect in reading.effects:
                self._events[effect.path][reading.key].append((reading, effect))
        self.paths = set(self._events)

    @property
    def events(self) -> int:
        return len(self._copies)

    def copies(self, key: Key) -> list[Reading]:
        return self._copies[key]

    def messages_about(self, path: str) -> list[Reading]:
        """All that say something about a document."""
        return [reading for told in self._events.get(path, {}).values() for reading, _ in told]

    def expected(self, path: str, stands_for: Mapping[Key, int]) -> list[Fields | None]:
        """All that the document may be, None for absent: one, unless an answer was lost. `stands_for` gives the message
        that was applied for an event, where it is known."""
        possible: dict[Key, list[tuple[Reading, Effect]]] = {}
        may_be_absent = True
        for key, told in self._events[path].items():
            standing = [both for both in told if stands_for.get(key, both[0].number) == both[0].number]
            if standing:
                possible[key] = standing
            may_be_absent &= not standing or (key not in stands_for and len(told) < len(self._copies[key]))
        numbers = _sums([told[0][1].numbers for told in possible.values()])
        documents: list[Fields | None] = [{**effect.fields, **numbers} for effect in _newest(possible)]
        return [*documents, None] if may_be_absent else documents

    def alternatives(self, stands_for: Mapping[Key, int]) -> list[list[str]]:
        """Documents of which exactly one must be there: the one that is named after the message that stands for its
        event, where nobody knows which message that is."""
        unknown = [[*map(_paths, copies)] for key, copies in self._copies.items() if key not in stands_for]
        named_after = [set[str]().union(*paths) - paths[0].intersection(*paths) for paths in unknown]
        return [sorted(paths) for paths in named_after if paths]


def _paths(reading: Reading) -> set[str]:
    return {effect.path for effect in reading.effects}


def _newest(possible: Mapping[Key, Sequence[tuple[Reading, Effect]]]) -> list[Effect]:
    """A message can be the newest if each other event may have been applied with a lower order."""
    lowest = sorted((min(reading.order for reading, _ in told), key) for key, told in possible.items())
    newest = []
    for key, told in possible.items():
        others = next((order for order, other in reversed(lowest) if other != key), None)
        newest += [effect for reading, effect in told if others is None or others < reading.order]
    return newest


def _sums(counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for numbers in counted:
        for name, number in numbers.items():
            sums[name] += number
    return dict(sums)


def without_clock(fields: Mapping[str, Any]) -> Fields:
    return {name: value for name, value in fields.items() if name not in CLOCK_FIELDS}


# Reading a message.


def read(number: int, body: bytes) -> Reading:
    envelope = json.loads(body)
    message = envelope["message"]
    data: Fields = json.loads(base64.b64decode(message["data"]))
    message_id: str = message["messageId"]
    published = nanoseconds(message["publishTime"]) if "publishTime" in message else 0
    topic = _topic(envelope["subscription"], message.get("attributes", {}), data)
    event_time = next((nanoseconds(data[name]) for name in EVENT_TIMES if name in data), published)
    source: Fields = {"topic": topic, "messageId": message_id}
    if published:
        source["publishedAt"] = text(published)
    return Reading(
        number=number,
        message_id=message_id,
        key=_key(topic, message_id, data),
        order=(event_time, data.get("sequence") or 0, published, message_id),
        effects=_effects(topic, message_id, data, event_time, source),
    )


def _topic(subscription: str, attributes: Mapping[str, str], data: Fields) -> str:
    short = subscription.rsplit("/", maxsplit=1)[-1]
    named = attributes.get("topic") or data.get("topic") or TOPICS_OF_SUBSCRIPTIONS.get(short)
    if named:
        return str(named).rsplit("/", maxsplit=1)[-1]
    assert "service" in data
    return "system.events"


def _key(topic: str, message_id: str, data: Fields) -> Key:
    if "eventId" in data:
        return topic, "eventId", str(data["eventId"])
    if topic == "orders":
        return topic, "order", data["order"], str(data["step"])
    if topic in STATES and (produced := data.get("producedAt") or data.get("timestamp")):
        said = [next(data[name] for name in NAMES if name in data), produced, data.get("region") or ""]
        state = [data.get(name) for name in ("sequence", "status", "version", "lastHeartbeatAt")]
        return topic, "identity", json.dumps([said, state])
    return topic, "messageId", message_id


def _effects(topic: str, message_id: str, data: Fields, event_time: int, source: Fields) -> list[Effect]:
    if topic == "system.events":
        fields = {"serviceId": data["service"], **_state(data, event_time, source), **_times(data, "lastHeartbeatAt")}
        return [Effect(f"ops_services/{ENV}__{data['service'].lower()}", fields, {})]
    if topic == "ingest-heartbeat":
        return _heartbeat(message_id, data, event_time, source)
    if topic == "unstorable":
        return []
    if topic == "orders":
        shown = {"step": data["step"], "amount": data["amount"], "message": message_id}
        counted = {"events": 1, "amount": data["amount"]}
        return [
            Effect(f"orders/{data['order']}", shown, {}),
            Effect(f"shops/{data['shop']}", {"newest": message_id}, counted),
        ]
    return [_of_stream(*_of_market(topic, data), message_id, data, event_time, source)]


def _state(data: Fields, event_time: int, source: Fields) -> Fields:
    return {
        "env": ENV,
        "status": data.get("status") or "unknown",
        "version": data.get("version") or "unknown",
        "region": data.get("region") or REGION,
        "updatedAt": text(event_time),
        "source": source,
    }


def _heartbeat(message_id: str, data: Fields, event_time: int, source: Fields) -> list[Effect]:
    name: Fields = {"pipelineId": next(data[name] for name in NAMES if name in data)}
    beaten = _times(data, "lastHeartbeatAt") or {"lastHeartbeatAt": text(event_time)}
    last = {"lastEventId": str(data.get("eventId", message_id)), "lastEventTime": text(event_time)}
    document_id = f"{ENV}__{name['pipelineId']}"
    return [
        Effect(f"ingest_pipelines/{document_id}", {**name, **_state(data, event_time, source), **beaten}, {}),
        _of_stream("ingest_events", name, message_id, data, event_time, source),
        Effect(f"ingest_events_summary/{document_id}", {**name, **last}, {"count": 1}),
    ]


def _of_stream(collection: str, own: Fields, message_id: str, data: Fields, event_time: int, source: Fields) -> Effect:
    document_id = str(data.get("eventId", message_id))
    fields = {
        "docId": document_id,
        **({"eventId": document_id} if "eventId" in data else {}),
        **own,
        "eventTime": text(event_time),
        **_times(data, "producedAt", "publishedAt"),
        "data": data,
        "source": source,
    }
    return Effect(f"{collection}/{document_id}", fields, {})


def _of_market(topic: str, data: Fields) -> tuple[str, Fields]:
    symbol = {"symbol": data["symbol"]}
    match topic:
        case "market-ticks":
            return "market_ticks", symbol
        case "market-bars-1m":
            bar = {"timeframe": data.get("timeframe", "1m"), **_times(data, "start", "end")}
            return "market_bars_1m", {**symbol, **bar}
        case "trade-signals":
            return "trade_signals", {**symbol, "strategy": data["strategy"], "action": data["action"]}
    raise AssertionError(topic)


# Times.


def _times(data: Fields, *names: str) -> Fields:
    return {name: text(nanoseconds(data[name])) for name in names if name in data}


def nanoseconds(told: str | int) -> int:
    if isinstance(told, int):
        return told * 10**9 if told < 10**11 else told * 10**6
    offset_at = len(told) - (1 if told.endswith("Z") else 6)
    whole, _, fraction = told[:offset_at].partition(".")
    moment = datetime.fromisoformat(whole + told[offset_at:].replace("Z", "+00:00"))
    return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))


def text(when: int) -> str:
    """With no more digits of a second than it needs, three at a time."""
    seconds, rest = divmod(when, 10**9)
    fraction = f"{rest:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    whole = datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"
