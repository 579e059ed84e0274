"""What all push subscriptions share: how many requests, and how many bytes in them, may be under way at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Bodies under way, in bytes. An endpoint that does not read leaves them in our memory.
MOST_BYTES = 128_000_000


@dataclass(slots=True)
class Load:
    """Of one subscription."""

    requests: int = 0
    bytes: int = 0


class Capacity:
    """One subscription may have no more under way than is left free for all others. So however many endpoints hang,
    and however wide their windows were, some room is always left for one that answers."""

    def __init__(self, most_requests: int, most_bytes: int = MOST_BYTES) -> None:
        self._free_requests = most_requests
        self._free_bytes = most_bytes
        self._starved: dict[Callable[[], None], None] = {}  # in the order they came

    def room(self, load: Load) -> tuple[int, int]:
        """Requests and bytes that may be added to `load`."""
        return self._free_requests - load.requests, self._free_bytes - load.bytes

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
        # As many as there are places: some may not want theirs any more, and the others must not wait for them.
        for wake in list(self._starved)[: max(self._free_requests, 1)]:
            del self._starved[wake]
            wake()

    def tell_when_free(self, wake: Callable[[], None]) -> None:
        self._starved[wake] = None
