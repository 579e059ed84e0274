"""What became of a message that was sent to one subscription alone, and of the place that a message held."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    PENDING = "pending"  # not settled yet
    ACKED = "acked"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"  # past its retention: settled, and perhaps without anybody having seen it
    UNKNOWN = "unknown"  # the broker does not tell, as Cloud Pub/Sub, or not any more


class Release(StrEnum):
    """Of an ordering key that was held at a dead-lettered message."""

    RELEASED = "released"
    NOT_HELD = "not_held"  # and will not be: it is settled, or nobody knows it
    NOT_YET = "not_yet"  # it may be on its way to be held: ask again
