"""Deliveries grouped for calls that settle one subscription's messages at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from holdfast.model.message import Delivery


def ack_ids_by_subscription(deliveries: Sequence[Delivery]) -> dict[str, list[str]]:
    ack_ids: dict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        ack_ids[delivery.subscription].append(delivery.ack_id)
    return ack_ids
