"""Made-up push statuses, for tests of what is told about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.broker.push.status import LATENCY_BOUNDS, PushCounts, PushStatus
from holdfast.clock import NANOSECONDS

NOW_NS = 1_700_000_000 * NANOSECONDS
BEFORE = "projects/local/subscriptions/"


def a_status(name: str = "orders", **changes: Any) -> PushStatus:
    """`name` is a short id in the project local, or a full path."""
    quiet = PushStatus(
        subscription=name if "/" in name else BEFORE + name,
        endpoint="http://127.0.0.1:9/push",
        state="idle",
        window=4,
        in_flight=0,
        due=0,
        oldest_due_ns=None,
        waiting=0,
        next_due_ns=None,
        last_status="",
        last_error="",
        last_attempt_ns=None,
        dropped=0,
        attempts={},
        latency_buckets=[0] * (len(LATENCY_BOUNDS) + 1),
        latency_seconds=0.0,
    )
    return replace(quiet, **changes)


def latencies(*seconds: float) -> dict[str, Any]:
    """The fields of a status whose requests took so long, as push itself counts them."""
    counts = PushCounts()
    for one in seconds:
        counts.count("acknowledged", "200", "", one, NOW_NS)
    return {"latency_buckets": counts.latency_buckets, "latency_seconds": counts.latency_seconds}
