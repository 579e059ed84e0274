"""Where one message stands in one subscription, for people who ask."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    NEW = "new"  # never delivered, or by a process that died before it was settled
    LEASED = "leased"
    WAITING = "waiting"
    LEAVING = "leaving"  # its dead letter is being written
    HELD = "held"
    SETTLED = "settled"


class Standing(NamedTuple):
    """`attempts` are those that failed, and with a lease that one too. `until_ns` is the end of the lease, or when the
    next attempt is due."""

    state: State
    attempts: int = 0
    until_ns: int | None = None
