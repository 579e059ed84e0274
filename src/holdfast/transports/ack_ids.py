"""Deliveries as the calls that settle them want them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from holdfast.model.message import Delivery

# Pub/Sub's own bound for a deadline.
LONGEST_DEADLINE_SECONDS = 600

# Pub/Sub takes requests of 512 KiB, and its ack ids have some 200 characters.
IDS_PER_REQUEST = 1000


def ack_ids_by_subscription(deliveries: Sequence[Delivery]) -> dict[str, list[str]]:
    ack_ids: dict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        ack_ids[delivery.subscription].append(delivery.ack_id)
    return ack_ids


def requests_for(deliveries: Sequence[Delivery]) -> Iterator[tuple[str, list[str]]]:
    """One subscription and some of its ack ids at a time."""
    for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
        for start in range(0, len(ack_ids), IDS_PER_REQUEST):
            yield subscription, ack_ids[start : start + IDS_PER_REQUEST]


def whole_seconds(delay: float) -> int:
    """A deadline has whole seconds, and is never shorter than what was asked for."""
    return min(math.ceil(max(delay, 0.0)), LONGEST_DEADLINE_SECONDS)
