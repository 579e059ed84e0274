"""Ordering keys that wait at a dead-lettered message: it is held, until another one takes its place or it is released.

A held message is a failed one whose next attempt is never due. It stays the head of its key, so that what is behind it
waits; it is not settled, so that its place is still there after a restart.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from holdfast.broker.log import DeleteRecord, FailedAttempts, PutRecord
from holdfast.broker.ordering import OrderingKeys
from holdfast.broker.progress import SettledMessages
from holdfast.errors import BadInput
from holdfast.model.resources import Subscription
from holdfast.settings import BrokerSettings

# The time of an attempt that never comes. The log keeps it as it keeps all others.
NEVER_NS = 1 << 62

# A subscription's label says it for this one, the setting for all others.
LABEL = "holdfast-ordered-dead-letters"
HOLD = "hold"
MODES = ("pass", HOLD)

REPLACEMENT = "in place of a held message"  # kind of record


def holds(config: Subscription, settings: BrokerSettings) -> bool:
    """Whether a key waits when one of its messages is dead-lettered. Cloud Pub/Sub knows only `pass`."""
    if not config.ordered or settings.strict:
        return False
    return config.labels.get(LABEL, settings.ordered_dead_letters) == HOLD


def check_label(config: Subscription) -> None:
    if config.labels.get(LABEL, HOLD) not in MODES:
        raise BadInput(f"labels[{LABEL!r}]", f"must be {' or '.join(MODES)}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Message `sequence` takes the place of `held` at the head of `key`."""

    subscription_key: int
    held: int
    sequence: int
    key: str

    def saved(self) -> PutRecord:
        return PutRecord(REPLACEMENT, self._name, json.dumps(asdict(self)).encode())

    def deleted(self) -> DeleteRecord:
        return DeleteRecord(REPLACEMENT, self._name)

    @property
    def _name(self) -> str:
        return f"{self.subscription_key}-{self.sequence}"

    @classmethod
    def from_record(cls, value: bytes) -> Replacement:
        return cls(**json.loads(value))


def replacements_by_subscription(records: Mapping[tuple[str, str], bytes]) -> dict[int, list[Replacement]]:
    found: dict[int, list[Replacement]] = defaultdict(list)
    for (kind, _), value in records.items():
        if kind == REPLACEMENT:
            replacement = Replacement.from_record(value)
            found[replacement.subscription_key].append(replacement)
    return found


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """What is told of one. `waiting` are those behind it that were read already."""

    subscription: str
    message_id: str
    ordering_key: str
    publish_time_ns: int
    attempts: int
    waiting: int


class HeldMessages:
    """Of one subscription. `freed` takes the messages whose turn has come."""

    def __init__(
        self, settled: SettledMessages, keys: OrderingKeys, freed: deque[int], replacements: Sequence[Replacement]
    ) -> None:
        self._settled = settled
        self._keys = keys
        self._freed = freed
        self._coming: dict[int, Replacement] = {}  # by the message whose place they take
        self._ahead: set[int] = set()  # delivered before their turn in the log comes
        for replacement in sorted(replacements, key=lambda one: one.sequence):
            self._restore(replacement)

    def _restore(self, replacement: Replacement) -> None:
        if replacement.sequence in self._settled:
            return
        if replacement.held in self._settled and self._keys.head(replacement.key) is None:
            self._take_place(replacement)
        else:
            self.replace(replacement)

    @property
    def sequences(self) -> list[int]:
        return sorted(sequence for sequence, failed in self._settled.failed.items() if failed.due_ns == NEVER_NS)

    def is_held(self, sequence: int) -> bool:
        failed = self._settled.failed.get(sequence)
        return failed is not None and failed.due_ns == NEVER_NS

    def came_before(self, sequence: int) -> bool:
        """Whether it was given its place at the head of its key already."""
        return sequence in self._ahead

    def hold(self, sequence: int, attempts: int) -> None:
        """Unless it outlived its retention on its way to be dead-lettered."""
        if sequence in self._settled:
            return
        self._settled.fail(sequence, FailedAttempts(attempts, NEVER_NS))
        if replacement := self._coming.pop(sequence, None):
            self._take_place(replacement)

    def replace(self, replacement: Replacement) -> None:
        """Once the message is held: after a crash it may be on its way to be dead-lettered again. Where it is settled,
        it is too late, and what was to replace it is a message like any other."""
        if replacement.held in self._settled:
            return
        if self.is_held(replacement.held):
            self._take_place(replacement)
        else:
            self._coming.setdefault(replacement.held, replacement)

    def _take_place(self, replacement: Replacement) -> None:
        sequence = replacement.sequence
        self._settled.settle(replacement.held, replacement.held)
        self._keys.take_place(replacement.key, replacement.held, sequence)
        self._ahead = {one for one in self._ahead if one not in self._settled} | {sequence}
        if sequence not in self._settled.failed:
            self._freed.append(sequence)
