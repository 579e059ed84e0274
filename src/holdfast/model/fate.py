"""What became of a message that was sent to one subscription alone."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    PENDING = "pending"  # not settled yet
    ACKED = "acked"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"  # past its retention: settled, and perhaps without anybody having seen it
    UNKNOWN = "unknown"  # the broker does not tell, as Cloud Pub/Sub, or not any more
