"""What happened, as everybody saw it: one line of JSON each, in the order in which the lab learned of it. It is written
while the run goes on, and the checker needs nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.model import replay_attributes

Entry = Mapping[str, Any]


class History:
    """Times are seconds since `begin`; what it takes to start a world comes before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._begun = time.monotonic()
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def begin(self, seed: int, seconds: float) -> None:
        self._begun = time.monotonic()
        self.add("begun", seed=seed, seconds=seconds)

    @property
    def now(self) -> float:
        return round(time.monotonic() - self._begun, 4)

    def add(self, what: str, **fields: Any) -> None:
        entry = {"t": self.now, "what": what, **fields}
        self.entries.append(entry)
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    # The publisher.

    def publishing(self, names: Sequence[str]) -> None:
        self.add("publishing", names=list(names))

    def published(self, names: Sequence[str], ids: Sequence[str]) -> None:
        self.add("published", names=list(names), ids=list(ids))

    def publish_unclear(self, names: Sequence[str], why: str) -> None:
        """It may be stored, or not."""
        self.add("publish_unclear", names=list(names), why=why)

    # Whoever receives. `sub` is a short id.

    def delivery(self, sub: str, message_id: str, attempt: int, key: str, attributes: Mapping[str, str]) -> str:
        """Gives its name. `replay` is the id under which the desk has sent it again, if it has, and `original` the
        message that failed."""
        name = attributes.get("name", "")
        told = {"sub": sub, "id": message_id, "name": name, "key": key, "attempt": attempt}
        replay = attributes.get(replay_attributes.REPLAY_ID, "")
        original = attributes.get(replay_attributes.ORIGINAL_MESSAGE_ID, "")
        self.add("delivery", **told, replay=replay, original=original)
        return name

    def acking(self, sub: str, message_id: str, name: str) -> None:
        """The ack is on its way: it may count or not."""
        self.add("acking", sub=sub, id=message_id, name=name)

    def acked(self, sub: str, message_id: str, name: str) -> None:
        """The broker has confirmed it."""
        self.add("acked", sub=sub, id=message_id, name=name)

    def refused(self, sub: str, message_id: str, name: str) -> None:
        """With the word that it is to be dead-lettered now."""
        self.add("refused", sub=sub, id=message_id, name=name)

    # The lab.

    def fault(self, number: int, kind: str, target: str, details: Mapping[str, Any]) -> None:
        self.add("fault", number=number, kind=kind, target=target, **details)

    def fault_over(self, number: int, kind: str, target: str) -> None:
        self.add("fault_over", number=number, kind=kind, target=target)

    def trouble(self, check: str, text: str) -> None:
        """What is wrong by itself, whatever else the history says: a part that ended, an answer that makes no sense."""
        self.add("trouble", check=check, text=text)


def read_history(path: Path) -> list[Entry]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
