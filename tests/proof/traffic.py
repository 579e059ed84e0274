"""What is sent in a run, made from a seed: events, the messages that carry them, and the order of their deliveries.

An event may be carried by several messages (it was published again), a message may be delivered several times. Many
events tie in their time, most come out of order, some very late.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

REDELIVERED = 0.3  # of all deliveries
REPUBLISHED = 0.1

SERVICES = 300
HOT_SERVICES = 5  # a fifth of all system events is about them
PIPELINES = 40
SHOPS = 12
STEPS_PER_ORDER = 6

START_NS = 1_770_000_000 * 10**9
MESSAGES_PER_TICK = 1500  # that share one event time: about three for each service

REGIONS = ("eu-west1", "us-east4", "")
STATUSES = ("ok", "degraded", "down", "")
SYMBOLS = ("ACME", "INIT", "ZORG")

# Knows which topic it is by its name, and one name is in the map that the workers are given.
ORDERS_SUBSCRIPTION = "orders-of-the-proof"
SUBSCRIPTION_TOPICS = {ORDERS_SUBSCRIPTION: "orders"}

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`event` numbers what it tells: messages with the same number tell the same."""

    number: int
    event: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """`deliveries` are numbers of messages, in the order in which they are sent."""

    messages: Sequence[Message]
    deliveries: Sequence[int]
    redelivered: int
    republished: int
    events: int


def make_traffic(seed: int, deliveries: int) -> Traffic:
    return _Making(random.Random(seed)).traffic(deliveries)


@dataclass(slots=True)
class _Event:
    topic: str
    payload: Payload
    publish_ns: int
    can_be_known_again: bool


@dataclass(slots=True)
class _Making:
    random: random.Random
    messages: list[Message] = field(default_factory=list)
    places: list[float] = field(default_factory=list)  # of the first delivery of each message
    ids: set[str] = field(default_factory=set)

    def traffic(self, deliveries: int) -> Traffic:
        redelivered, republished = round(deliveries * REDELIVERED), round(deliveries * REPUBLISHED)
        originals = deliveries - redelivered - republished
        events = [self._event(number) for number in range(originals)]
        for number, event in enumerate(events):
            self._publish(number, event, event.publish_ns, self._first_place(number, originals))
        again = [number for number, event in enumerate(events) if event.can_be_known_again]
        for _ in range(republished):
            number = self.random.choice(again)
            event = events[number]
            later_ns = self.random.choice((0, 1, 20, 3_000)) * self.random.randrange(10**6, 10**9, 10**6)
            place = self._later_place(self.places[number], originals)
            self._publish(number, self._published_again(event), event.publish_ns + later_ns, place)
        sent = [(place, number) for number, place in enumerate(self.places)]
        for _ in range(redelivered):
            number = self.random.randrange(len(self.messages))
            sent.append((self._later_place(self.places[number], originals), number))
        return Traffic(self.messages, [number for _, number in sorted(sent)], redelivered, republished, originals)

    # When.

    def _first_place(self, number: int, originals: int) -> float:
        if self.random.random() < 0.02:
            return self.random.uniform(number, originals)  # very late
        return number + self.random.uniform(0, 200)

    def _later_place(self, first: float, originals: int) -> float:
        """At the same moment, soon after, or long after."""
        chance = self.random.random()
        if chance < 0.4:
            return first + self.random.uniform(0, 3)
        if chance < 0.8:
            return first + self.random.uniform(0, 3000)
        return self.random.uniform(first, max(first, originals))

    # What.

    def _publish(self, event_number: int, event: _Event, publish_ns: int, place: float) -> None:
        body = self._envelope(event, publish_ns)
        self.messages.append(Message(len(self.messages), event_number, body))
        self.places.append(place)

    def _published_again(self, event: _Event) -> _Event:
        """Perhaps with something that is no part of what makes it the same event."""
        if self.random.random() < 0.5:
            return event
        return _Event(event.topic, event.payload | {"resent": self.random.randrange(100)}, event.publish_ns, True)

    def _envelope(self, event: _Event, publish_ns: int) -> bytes:
        message_id = self._message_id()
        message: Payload = {"messageId": message_id}
        if self.random.random() < 0.3:
            message["message_id"] = message_id
        if self.random.random() < 0.95:
            message["publishTime"] = rfc3339(publish_ns)
        payload = event.payload
        subscription = "projects/local/subscriptions/any"
        way = self.random.randrange(4)
        if way == 0 and event.topic == "orders":
            subscription = f"projects/local/subscriptions/{ORDERS_SUBSCRIPTION}"
        elif way == 0 and event.topic != "unstorable":
            subscription = f"projects/local/subscriptions/{event.topic}.materializer"
        elif way == 1 and event.topic == "system.events":
            pass  # its shape tells it
        elif way == 2:
            payload = {"topic": f"projects/local/topics/{event.topic}", **payload}
        else:
            message["attributes"] = {"topic": event.topic}
        message["data"] = base64.b64encode(json.dumps(payload).encode()).decode()
        envelope: Payload = {"message": message, "subscription": subscription}
        if event.topic == "unstorable" or self.random.random() < 0.5:
            envelope["deliveryAttempt"] = 1  # there is a dead-letter policy, so that a refusal is told by its status
        return json.dumps(envelope).encode()

    def _message_id(self) -> str:
        """Of different lengths: they are text, and compare as text."""
        while (message_id := str(self.random.randrange(10 ** self.random.randrange(9, 17)))) in self.ids:
            pass
        self.ids.add(message_id)
        return message_id

    def _event(self, number: int) -> _Event:
        kinds: Mapping[Callable[[int], _Event], int] = {
            self._system_event: 45,
            self._order: 20,
            self._heartbeat: 15,
            self._tick: 10,
            self._bar: 5,
            self._signal: 4,
            self._unstorable: 1,
        }
        make = self.random.choices([*kinds], [*kinds.values()])[0]
        return make(number)

    def _system_event(self, number: int) -> _Event:
        return self._state(number, "system.events", {"service": self._service()})

    def _heartbeat(self, number: int) -> _Event:
        name = self.random.choice(("pipelineId", "pipeline_id", "pipeline", "service"))
        return self._state(number, "ingest-heartbeat", {name: f"pipeline-{self.random.randrange(PIPELINES)}"})

    def _state(self, number: int, topic: str, payload: Payload) -> _Event:
        """What something says about itself: the newest counts."""
        payload["status"] = self.random.choice(STATUSES)
        time_field = self.random.choice(("producedAt", "producedAt", "timestamp", "publishedAt", "ts", "time", ""))
        event_ns = self._event_time(number)
        if time_field:
            payload[time_field] = self._as_time(event_ns)
        if self.random.random() < 0.6:
            payload["sequence"] = self.random.randrange(8)
        if self.random.random() < 0.5:
            payload["lastHeartbeatAt"] = self._as_time(event_ns - self.random.randrange(10) * 10**9)
        if self.random.random() < 0.5:
            payload["region"] = self.random.choice(REGIONS)
        has_id = self.random.random() < 0.5
        if has_id:
            payload["eventId"] = self._event_id(number)
        if not has_id or self.random.random() < 0.5:
            payload["version"] = f"1.{number}"  # so that no two events without an id say the same
        known = has_id or time_field in ("producedAt", "timestamp")
        return _Event(topic, payload, self._publish_time(number), known)

    def _service(self) -> str:
        if self.random.random() < 0.2:
            return f"hot-{self.random.randrange(HOT_SERVICES)}"
        name = f"service-{self.random.randrange(SERVICES)}"
        return name.upper() if self.random.random() < 0.1 else name  # the same document

    def _order(self, number: int) -> _Event:
        # Neighbours in time are steps of the same order.
        order, step = divmod(number, STEPS_PER_ORDER * 4)
        payload: Payload = {
            "order": f"order-{order}",
            "step": step,
            "shop": f"shop-{order % SHOPS}",
            "amount": self.random.randrange(-500, 1000),
            "producedAt": self._as_time(self._event_time(number)),
        }
        if self.random.random() < 0.5:
            payload["eventId"] = self._event_id(number)
        if self.random.random() < 0.5:
            payload["sequence"] = self.random.randrange(4)
        return _Event("orders", payload, self._publish_time(number), True)

    def _tick(self, number: int) -> _Event:
        payload = {"price": self.random.randrange(10**6) / 100, "size": self.random.randrange(10**18)}
        return self._market(number, "market-ticks", payload)

    def _bar(self, number: int) -> _Event:
        start_ns = self._event_time(number)
        payload: Payload = {"start": self._as_time(start_ns), "end": self._as_time(start_ns + 60 * 10**9)}
        if self.random.random() < 0.5:
            payload["timeframe"] = "5m"
        return self._market(number, "market-bars-1m", payload)

    def _signal(self, number: int) -> _Event:
        payload = {"strategy": "mean-reversion", "action": self.random.choice(("buy", "sell")), "nested": {"é": [1]}}
        return self._market(number, "trade-signals", payload)

    def _unstorable(self, number: int) -> _Event:
        return _Event("unstorable", {"number": number}, self._publish_time(number), False)

    def _market(self, number: int, topic: str, payload: Payload) -> _Event:
        payload = {"symbol": self.random.choice(SYMBOLS), **payload}
        if self.random.random() < 0.8:
            payload["producedAt"] = self._as_time(self._event_time(number))
        if self.random.random() < 0.3:
            payload["publishedAt"] = self._as_time(self._publish_time(number))
        has_id = self.random.random() < 0.7
        if has_id:
            payload["eventId"] = self._event_id(number)
        return _Event(topic, payload, self._publish_time(number), has_id)

    def _event_id(self, number: int) -> str | int:
        return number if self.random.random() < 0.2 else f"event-{number}"

    def _event_time(self, number: int) -> int:
        tick = number // MESSAGES_PER_TICK - (self.random.randrange(3) if self.random.random() < 0.2 else 0)
        return START_NS + tick * 10**9

    def _publish_time(self, number: int) -> int:
        """Coarse too, so that also the message id has to decide sometimes."""
        return START_NS + number // 500 * 10**9 + self.random.choice((0, 1, 1_000_000, 250_000_000))

    def _as_time(self, when_ns: int) -> str | int | float:
        """In one of the ways that producers write a time; all of them say the same moment."""
        way = self.random.randrange(4)
        if way == 0:
            return when_ns // 10**6  # epoch milliseconds
        if way == 1 and when_ns % 10**9 == 0:
            return when_ns // 10**9
        if way == 2:
            return rfc3339(when_ns + 2 * 3600 * 10**9).replace("Z", "+02:00")
        return rfc3339(when_ns)


def rfc3339(when_ns: int) -> str:
    seconds, nanoseconds = divmod(when_ns, 10**9)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{nanoseconds:09d}Z" if nanoseconds else f"{whole}Z"
