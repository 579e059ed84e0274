"""What is remembered of messages that are sent once: under which REPLAY_ID, and how those to one subscription ended.

It is in memory and, as records of the log, on disk. This file says what to commit; committing is the caller's.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.log import Change, DeleteRecord, PutRecord

# Kinds of records: one for each call that sent something, by the number of its first message; one for each message
# that was dead-lettered, by its own number.
SENT = "addressed messages"
DEAD_LETTERED = "addressed message dead-lettered"

_HEAD = struct.Struct("<qqq")  # when, for which subscription or topic, the first message's number
_DIGEST_BYTES = 16
NO_REPLAY_ID = bytes(_DIGEST_BYTES)


def digest_of(target_key: int, replay_id: str) -> bytes:
    """128 bits of it: among any number of messages that there will ever be, no two are the same by chance."""
    if not replay_id:
        return NO_REPLAY_ID
    return hashlib.sha256(b"%d %s" % (target_key, replay_id.encode())).digest()[:_DIGEST_BYTES]


@dataclass(frozen=True, slots=True)
class Sent:
    """One call. Its messages have consecutive numbers from `first` on, and a digest each."""

    at_ns: int
    target_key: int
    first: int
    digests: Sequence[bytes]

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.digests))

    def saved(self) -> PutRecord:
        head = _HEAD.pack(self.at_ns, self.target_key, self.first)
        return PutRecord(SENT, str(self.first), head + b"".join(self.digests))

    def deleted(self) -> DeleteRecord:
        return DeleteRecord(SENT, str(self.first))

    @classmethod
    def from_record(cls, value: bytes) -> Sent:
        digests = [value[at : at + _DIGEST_BYTES] for at in range(_HEAD.size, len(value), _DIGEST_BYTES)]
        at_ns, target_key, first = _HEAD.unpack_from(value)
        return cls(at_ns, target_key, first, digests)


class SentMessages:
    """By message number, which is the message id as an integer."""

    def __init__(self, records: Mapping[tuple[str, str], bytes]) -> None:
        self._by_age: deque[Sent] = deque()
        self._by_number: dict[int, Sent] = {}
        self._by_digest: dict[bytes, int] = {}
        self._dead_lettered = {int(name) for kind, name in records if kind == DEAD_LETTERED}
        found = [Sent.from_record(value) for (kind, _), value in records.items() if kind == SENT]
        for sent in sorted(found, key=lambda sent: sent.at_ns):
            self.put(sent)

    def put(self, sent: Sent) -> None:
        self._by_age.append(sent)
        for number, digest in zip(sent.numbers, sent.digests, strict=True):
            self._by_number[number] = sent
            if digest != NO_REPLAY_ID:
                self._by_digest[digest] = number

    def by_number(self) -> list[Sent]:
        return sorted(self._by_age, key=lambda sent: sent.first)

    def of(self, number: int) -> Sent | None:
        return self._by_number.get(number)

    def under(self, digest: bytes) -> int | None:
        """The number of the message that was sent under this REPLAY_ID."""
        return self._by_digest.get(digest)

    def before(self, at_ns: int) -> list[Sent]:
        return [sent for sent in self._by_age if sent.at_ns < at_ns]

    def forget(self, gone: Sequence[Sent]) -> list[Change]:
        """Gives what to commit then."""
        changes: list[Change] = []
        for sent in gone:
            changes.append(sent.deleted())
            for number, digest in zip(sent.numbers, sent.digests, strict=True):
                del self._by_number[number]
                self._by_digest.pop(digest, None)
                if number in self._dead_lettered:
                    self._dead_lettered.discard(number)
                    changes.append(DeleteRecord(DEAD_LETTERED, str(number)))
        left = set(map(id, gone))
        self._by_age = deque(sent for sent in self._by_age if id(sent) not in left)
        return changes

    # How they ended.

    def is_dead_lettered(self, number: int) -> bool:
        return number in self._dead_lettered

    def dead_letter(self, number: int) -> list[Change]:
        """What to commit with the dead letter; `dead_lettered` is said once that is done."""
        return [PutRecord(DEAD_LETTERED, str(number), b"")] if number in self._by_number else []

    def dead_lettered(self, number: int) -> None:
        if number in self._by_number:
            self._dead_lettered.add(number)
