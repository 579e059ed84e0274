"""The journey of one message: what each part knows of it and of those that came of it, as one timeline.

A part tells of the ids that it is asked for, and names others that belong to them: the dead letter, and what was sent
again. So whoever asks goes on until nobody names a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from holdfast.model.timestamps import format_rfc3339, parse_rfc3339

# A message that was sent again for ever would be asked after for ever.
MOST_IDS = 200


class Part(StrEnum):
    BROKER = "broker"
    CONSUMER = "consumer"
    DESK = "desk"


class Precision(StrEnum):
    """How exactly the time of an event is known."""

    EXACT = "exact"
    BY = "by"  # at that time or before
    NOW = "now"  # no event, but how things stand at the time of asking


class Did(StrEnum):
    """What happened. In the order in which they follow each other when their times are the same."""

    PUBLISHED = "published"
    FILTERED_OUT = "filtered_out"
    ATTEMPT_FAILED = "attempt_failed"
    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE_IGNORED = "stale_ignored"
    HANDLED = "handled"  # applied or stale: the mark that was made does not say which
    ACKED = "acked"
    DROPPED = "dropped"
    DEAD_LETTERED = "dead_lettered"
    SENT_AGAIN = "sent_again"
    RECORDED = "recorded"
    EDITED = "edited"
    ACTED_ON = "acted_on"  # by a person, as the audit trail has it
    SUCCEEDED = "succeeded"  # as the desk found out
    IS = "is"  # how it stands now


@dataclass(frozen=True, slots=True)
class Event:
    """`where` is a topic, subscription, consumer or a row of the desk. An event with the precision `by` did not happen
    before `since_ns`, where that is known. `related` is the id of another message: the copy, or what was sent again."""

    part: Part
    did: Did
    message_id: str
    where: str
    at_ns: int | None
    precision: Precision = Precision.EXACT
    since_ns: int | None = None
    attempt: int = 0
    detail: str = ""
    related: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a part knows. `ids` are messages that belong together with those asked for."""

    events: Sequence[Event] = ()
    ids: Collection[str] = ()
    notes: Sequence[str] = ()  # what it cannot know


class Teller(Protocol):
    part: Part

    async def tell(self, message_ids: Sequence[str]) -> Told: ...


@dataclass(slots=True)
class Journey:
    """`message_ids` are the one that was asked for first, then the others. The events are in no order yet."""

    message_ids: list[str]
    parts: list[Part]
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def journey_of(message_id: str, tellers: Sequence[Teller]) -> Journey:
    journey = Journey([message_id], [teller.part for teller in tellers])
    new = [message_id]
    while new:
        told = await asyncio.gather(*(teller.tell(new) for teller in tellers))
        journey.events += [event for one in told for event in one.events]
        journey.notes += [note for one in told for note in one.notes]
        named = {found: None for one in told for found in one.ids}
        room = MOST_IDS - len(journey.message_ids)
        new = [found for found in named if found not in journey.message_ids][:room]
        journey.message_ids += new
    journey.notes = list(dict.fromkeys(journey.notes))
    return journey


# As JSON: a command line joins what several processes answer.


def journey_to_json(journey: Journey) -> dict[str, Any]:
    return {
        "messageId": journey.message_ids[0],
        "messageIds": list(journey.message_ids),
        "parts": [str(part) for part in journey.parts],
        "events": _arranged([event_to_json(event) for event in journey.events]),
        "notes": list(journey.notes),
    }


def event_to_json(event: Event) -> dict[str, Any]:
    return {
        "time": _time(event.at_ns),
        "precision": str(event.precision),
        "notBefore": _time(event.since_ns),
        "part": str(event.part),
        "did": str(event.did),
        "where": event.where,
        "messageId": event.message_id,
        "attempt": event.attempt,
        "detail": event.detail,
        "relatedMessageId": event.related,
    }


def _time(at_ns: int | None) -> str | None:
    return None if at_ns is None else format_rfc3339(at_ns)


def merged(journeys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several answers to the same question one."""
    return {
        "messageId": journeys[0]["messageId"],
        "messageIds": _once(journeys, "messageIds"),
        "parts": _once(journeys, "parts"),
        "events": _arranged([event for journey in journeys for event in journey["events"]]),
        "notes": _once(journeys, "notes"),
    }


def _arranged(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By time, each once, and how things stand now last."""
    ranks = {str(did): float(rank) for rank, did in enumerate(Did)}
    copies = {event["relatedMessageId"] for event in events}

    def place(event: Mapping[str, Any]) -> tuple[bool, int, float]:
        rank = ranks.get(event["did"], len(ranks))  # of a newer process
        if event["did"] == Did.PUBLISHED and event["messageId"] in copies:  # after what it was published for
            rank = ranks[Did.SENT_AGAIN] + 0.5
        return event["precision"] == Precision.NOW, _time_of(event), rank

    best: dict[object, Mapping[str, Any]] = {}
    for event in events:
        name = _name(event)
        if name not in best or _worth(event) > _worth(best[name]):
            best[name] = event
    return sorted([_not_after_others(event, best.values()) for event in best.values()], key=place)


def _not_after_others(event: Mapping[str, Any], events: Collection[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Whatever happened to a message, it was published by then."""
    if event["did"] != Did.PUBLISHED or event["precision"] != Precision.BY:
        return event
    others = [one for one in events if one["messageId"] == event["messageId"] and one["time"]]
    return {**event, "time": min(others, key=_time_of)["time"]} if others else event


def _time_of(event: Mapping[str, Any]) -> int:
    return parse_rfc3339(event["time"]) if event["time"] else 0


def _name(event: Mapping[str, Any]) -> object:
    """What several parts may tell of goes by its name: that it was published, and sent again. All else is the same only
    where all of it is."""
    if event["did"] in (Did.PUBLISHED, Did.SENT_AGAIN):
        return event["did"], event["messageId"], event["relatedMessageId"]
    return tuple(sorted(event.items()))


def _worth(event: Mapping[str, Any]) -> tuple[bool, bool]:
    """An exact time, and then the part that knows more of it: the broker published it, the desk sent it again."""
    knows = Part.DESK if event["did"] == Did.SENT_AGAIN else Part.BROKER
    return event["precision"] == Precision.EXACT, event["part"] == knows


def _once(journeys: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(value for journey in journeys for value in journey[name]))
