"""Snapshots: a subscription's progress at one moment, kept so that any subscription of the topic can return to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.broker.log import DeleteRecord, Progress, PutRecord

KIND = "snapshot"

# Cloud Pub/Sub: a snapshot lives until its oldest unacked message is this old.
LIFETIME_SECONDS = 7 * 24 * 3600
SHORTEST_LIFETIME_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Snapshot:
    name: str
    topic: str
    topic_key: int
    expire_time_ns: int
    floor: int
    acked: Mapping[int, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def progress(self) -> Progress:
        return Progress(self.floor, dict(self.acked))

    def saved(self) -> PutRecord:
        value = asdict(self) | {"acked": list(self.acked.items())}
        return PutRecord(KIND, self.name, json.dumps(value).encode())

    def deleted(self) -> DeleteRecord:
        return DeleteRecord(KIND, self.name)

    @classmethod
    def from_record(cls, value: bytes) -> Snapshot:
        fields: dict[str, Any] = json.loads(value)
        return cls(**fields | {"acked": dict(fields["acked"])})


class Snapshots:
    """All there are, by name. Says what to commit; committing is the caller's."""

    def __init__(self, records: Mapping[tuple[str, str], bytes]) -> None:
        self._by_name = {name: Snapshot.from_record(value) for (kind, name), value in records.items() if kind == KIND}

    def find(self, name: str) -> Snapshot | None:
        return self._by_name.get(name)

    def sorted(self) -> list[Snapshot]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def put(self, snapshot: Snapshot) -> None:
        self._by_name[snapshot.name] = snapshot

    def remove(self, name: str) -> None:
        del self._by_name[name]

    def of_topic(self, topic_key: int) -> list[Snapshot]:
        return [snapshot for snapshot in self.sorted() if snapshot.topic_key == topic_key]

    def expired(self, now_ns: int) -> list[Snapshot]:
        return [snapshot for snapshot in self.sorted() if snapshot.expire_time_ns <= now_ns]
