"""PORT and chain: who did what to which message. Entries are only ever added, and each carries the hash of the one
before it, so that a changed or missing one shows.

The end of the chain could be cut off without a trace in the store; whoever must rule that out keeps the hash of the
last entry elsewhere (`holdfast audit verify` prints it, and takes it back with --head).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# What the first entry names as the hash before it.
NOTHING_BEFORE = "0" * 64


@dataclass(frozen=True, slots=True)
class Action:
    """`name` is a verb of a documented list, such as `failure.replay`. `target` names what it was done to, and
    `details` hold JSON values: never payloads, attributes or other content of messages."""

    actor: str
    name: str
    target: str
    details: Mapping[str, Any] = field(default_factory=dict)
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    number: int  # 1, 2, 3 … without holes
    action: Action
    previous: str
    hash: str


def chained(number: int, action: Action, previous: str) -> Entry:
    return Entry(number, action, previous, entry_hash(number, action, previous))


def entry_hash(number: int, action: Action, previous: str) -> str:
    """Over canonical JSON, so that it is the same whichever store keeps it."""
    told = [number, action.at_ns, action.actor, action.name, action.target, action.details, previous]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def id_ranges(ids: Iterable[int]) -> list[str]:
    """Many ids in few words: 1-500, 502."""
    ranges: list[list[int]] = []
    for failure_id in sorted(ids):
        if ranges and failure_id == ranges[-1][1] + 1:
            ranges[-1][1] = failure_id
        else:
            ranges.append([failure_id, failure_id])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]


def is_in_ranges(failure_id: int, told: str) -> bool:
    """Of the text that names many: 1-500,502. What is no such text names none."""
    for part in told.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(first) <= failure_id <= int(last or first):
            return True
    return False


def names_failure(action: Action, failure_id: int) -> bool:
    """It was done to this failed message, alone or among others."""
    if action.target == f"failures/{failure_id}":
        return True
    told = action.details.get("failures")
    return action.target == "failures" and isinstance(told, str) and is_in_ranges(failure_id, told)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Empty means any. A target `failures/ID` means also what was done to many at once, this one among them."""

    actor: str = ""
    name: str = ""
    target: str = ""
    since_ns: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    entries: Sequence[Entry]
    next_page_token: str = ""


class AuditLog(Protocol):
    """The other ports write their own actions into it, each with the change that it tells of."""

    async def append(self, action: Action) -> Entry:
        """For what changes nothing else, such as looking at what is redacted. Durable at return."""
        ...

    async def list_entries(self, wanted: AuditFilter, page_size: int, page_token: str = "") -> AuditPage:
        """Newest first."""
        ...

    def read_entries(self) -> AsyncIterator[Entry]:
        """All of them, oldest first, as they are stored: what is damaged comes as it is."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem` is "" when every entry is what it was. `number` is that of the first entry that is not, else of the
    last; `head` is the hash of the last good entry."""

    number: int
    head: str
    problem: str = ""


async def verify(entries: AsyncIterator[Entry], head: str = "") -> Verdict:
    """`head` is the hash of an entry that must be among them, as somebody noted it."""
    number, previous, found = 0, NOTHING_BEFORE, not head
    async for entry in entries:
        problem = _problem(entry, number + 1, previous)
        if problem:
            return Verdict(number + 1, previous, problem)
        number, previous = entry.number, entry.hash
        found = found or entry.hash == head
    if not found:
        return Verdict(number, previous, f"no entry has the hash {head[:64]}: the end of the trail was cut off")
    return Verdict(number, previous)


def _problem(entry: Entry, number: int, previous: str) -> str:
    if entry.number != number:
        return f"entry {number} is missing: the next one is {entry.number}"
    if entry.previous != previous:
        return f"entry {number} does not follow the one before it"
    if entry_hash(entry.number, entry.action, entry.previous) != entry.hash:
        return f"entry {number} was changed"
    return ""
