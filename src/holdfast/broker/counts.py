"""What one subscription's deliveries came to, counted where it happens. Of this process alone, from 0 at its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DeliveryCounts:
    delivered: int = 0  # leases given
    acked: int = 0  # messages
    nacked: int = 0  # deliveries that failed, but for those that
    expired: int = 0
    dead_lettered: int = 0  # messages, once the copy is on disk
