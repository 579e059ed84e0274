"""What all push subscriptions share: how many requests, and how many bytes in them, may be under way at once."""

from __future__ import annotations

from dataclasses import dataclass

# Bodies under way, in bytes. An endpoint that does not read leaves them in our memory.
MOST_BYTES = 128_000_000


@dataclass(slots=True)
class Load:
    """Of one subscription."""

    requests: int = 0
    bytes: int = 0


class Capacity:
    """One subscription may have no more under way than is left free for all others, and one request always: however
    many endpoints hang, and however wide their windows were, one that answers is served."""

    def __init__(self, most_requests: int, most_bytes: int = MOST_BYTES) -> None:
        self._free_requests = most_requests
        self._free_bytes = most_bytes

    def room(self, load: Load) -> tuple[int, int]:
        """Requests and bytes that may be added to `load`. What is added is no longer free, so half the difference."""
        requests = (self._free_requests - load.requests + 1) // 2
        size = (self._free_bytes - load.bytes + 1) // 2
        return (requests, size) if load.requests else (max(requests, 1), max(size, 1))

    def take(self, load: Load, size: int) -> None:
        load.requests += 1
        load.bytes += size
        self._free_requests -= 1
        self._free_bytes -= size

    def give_back(self, load: Load, size: int) -> None:
        load.requests -= 1
        load.bytes -= size
        self._free_requests += 1
        self._free_bytes += size
