"""What is done to both sides: plain values, so that a sequence can be printed, cut down and done again.

Texts may hold placeholders that each side fills in by itself: {P} the project, {r0} the first revision of a schema that
it gave, {k0} a moment that was marked. A message is known by its symbol, m0, m1 and so on: its attribute `n`, or its
data where it has none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """`do` is a method of the API, or one of our own: Take (pull all there is and keep it), Stream (the same with a
    streaming pull), Drain (pull and ack until nothing comes), Exhaust (pull and nack until nothing comes), Walk (a
    list, page by page) and Mark (remember the time). Acknowledge and ModifyAckDeadline name messages by their symbols,
    or give `ack_ids`."""

    do: str
    request: dict[str, Any] = field(default_factory=dict)
    rest: bool = False

    def __str__(self) -> str:
        return f"{self.do}{' (REST)' if self.rest else ''} {json.dumps(self.request, sort_keys=True)}"


def to_json(sequence: Sequence[Operation]) -> str:
    return json.dumps([asdict(operation) for operation in sequence])


def from_json(text: str) -> list[Operation]:
    return [Operation(**item) for item in json.loads(text)]
