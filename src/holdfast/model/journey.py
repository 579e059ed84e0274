"""The journey of one message: what each part knows of it and of those that came of it, as one timeline.

A part tells of the ids that it is asked for, and names others that belong to them: the dead letter, and what was sent
again. So whoever asks goes on until nobody names a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    RECORDED = "recorded"
    EDITED = "edited"
    ACTED_ON = "acted_on"  # by a person, as the audit trail has it
    SENT_AGAIN = "sent_again"
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
    """`message_ids` are the one that was asked for first, then the others."""

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
    journey.events = in_order(journey.events)
    journey.notes = list(dict.fromkeys(journey.notes))
    return journey


def in_order(events: Iterable[Event]) -> list[Event]:
    """By time; each once, and how things stand now last."""
    ranks = list(Did)

    def place(event: Event) -> tuple[bool, int, int]:
        return event.precision is Precision.NOW, event.at_ns or 0, ranks.index(event.did)

    return sorted(dict.fromkeys(events), key=place)


# As JSON, and back: a command line joins what several processes answer.


def journey_to_json(journey: Journey) -> dict[str, Any]:
    return {
        "messageId": journey.message_ids[0],
        "messageIds": list(journey.message_ids),
        "parts": [str(part) for part in journey.parts],
        "events": [event_to_json(event) for event in journey.events],
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
    """Of several answers to the same question one. Where two processes tell the same, it stands there once."""
    events = {repr(sorted(event.items())): event for journey in journeys for event in journey["events"]}
    ranks = [str(did) for did in Did]

    def place(event: Mapping[str, Any]) -> tuple[bool, int, int]:
        rank = ranks.index(event["did"]) if event["did"] in ranks else len(ranks)  # of a newer process
        return event["precision"] == Precision.NOW, parse_rfc3339(event["time"]) if event["time"] else 0, rank

    return {
        "messageId": journeys[0]["messageId"],
        "messageIds": _once(journeys, "messageIds"),
        "parts": _once(journeys, "parts"),
        "events": sorted(events.values(), key=place),
        "notes": _once(journeys, "notes"),
    }


def _once(journeys: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(value for journey in journeys for value in journey[name]))
