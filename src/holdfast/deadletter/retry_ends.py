"""How automatic retries end: the broker is asked what became of those that are out.

Most failures are told sooner, by the dead letter of the retry (intake.py). What is asked here finds the successes, and
the failures whose dead letter does not come.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.failures import FailureStore
from holdfast.deadletter.intake import tell_if_given_up
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.failed_message import FailedMessage
from holdfast.model.fate import Fate

log = logging.getLogger("holdfast.deadletter")

PAGE = 500

# Soon after something was sent, then ever less often, as long as something is out.
SHORTEST_INTERVAL_SECONDS = 0.5
LONGEST_INTERVAL_SECONDS = 10.0
IDLE_SECONDS = 30.0

# A dead letter tells what went wrong; so long it may take to come before we go on without.
DEAD_LETTER_SECONDS = 30.0

# A broker that told once and does not know any more has lost its memory: nobody can say that it was a success. One that
# never tells is asked long before.
LONGEST_UNKNOWN_SECONDS = 24 * 3600.0


class RetryEnds:
    def __init__(
        self, store: FailureStore, outlet: Outlet, policy: RetryPolicy, clock: Clock, settle_seconds: float
    ) -> None:
        self._store = store
        self._outlet = outlet
        self._policy = policy
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._interval_seconds = SHORTEST_INTERVAL_SECONDS
        self._next_ns = 0
        self._dead_lettered_ns: dict[int, int] = {}  # by row: since when it is known

    def soon_ns(self) -> int:
        """When to look after something was sent."""
        self._interval_seconds = SHORTEST_INTERVAL_SECONDS
        self._next_ns = min(self._next_ns, self._in(SHORTEST_INTERVAL_SECONDS))
        return self._next_ns

    async def look(self) -> int:
        """If it is time for it. Gives when it is time again."""
        if self._clock.now_ns() >= self._next_ns:
            out, ended = await self._look_at_all()
            self._plan(out, ended)
        return self._next_ns

    def _plan(self, out: int, ended: int) -> None:
        doubled = min(self._interval_seconds * 2, LONGEST_INTERVAL_SECONDS)
        self._interval_seconds = SHORTEST_INTERVAL_SECONDS if ended else doubled
        self._next_ns = self._in(self._interval_seconds if out else IDLE_SECONDS)

    async def _look_at_all(self) -> tuple[int, int]:
        """How many are out, and how many of them have ended."""
        out, ended, last_id = 0, 0, 0
        seen: set[int] = set()
        while rows := await self._store.out_on_retry(PAGE, last_id):
            out += len(rows)
            last_id = rows[-1].id
            seen.update(row.id for row in rows)
            ended += await self._look_at(rows)
        self._dead_lettered_ns = {row: since for row, since in self._dead_lettered_ns.items() if row in seen}
        return out, ended

    async def _look_at(self, rows: Sequence[FailedMessage]) -> int:
        by_subscription: dict[str, list[FailedMessage]] = defaultdict(list)
        for row in rows:
            by_subscription[row.subscription].append(row)
        ended: list[FailedMessage] = []
        for subscription, of_it in by_subscription.items():
            ended += await self._ended(subscription, of_it)
        if ended:
            for row, kept in zip(ended, await self._store.save(ended), strict=True):
                if kept:
                    tell_if_given_up(row)
        return len(ended)

    async def _ended(self, subscription: str, rows: Sequence[FailedMessage]) -> list[FailedMessage]:
        try:
            fates = await self._outlet.fates(subscription, [row.sent_message_id for row in rows])
        except NotFound:  # it was deleted, and what was on its way with it
            return [
                row.give_up(f"the subscription was deleted while a retry was out; before: {row.error_details}")
                for row in rows
            ]
        except HoldfastError as error:
            log.warning("cannot ask what became of %d retries to %s: %s", len(rows), subscription, error)
            return []
        changed = (self._after(row, fates.get(row.sent_message_id, Fate.UNKNOWN)) for row in rows)
        return [row for row in changed if row is not None]

    def _after(self, row: FailedMessage, fate: Fate) -> FailedMessage | None:
        """None where it has not ended yet."""
        now_ns = self._clock.now_ns()
        match fate:
            case Fate.ACKED:
                return row.mark_retry_success(now_ns)
            case Fate.DEAD_LETTERED:
                since_ns = self._dead_lettered_ns.setdefault(row.id, now_ns)
                is_late = now_ns - since_ns >= DEAD_LETTER_SECONDS * NANOSECONDS
                return self._policy.retry_failed(row, now_ns, row.error_details) if is_late else None
            case Fate.EXPIRED:
                return row.give_up(f"its last retry expired, and nobody may have seen it; before: {row.error_details}")
            case Fate.UNKNOWN:
                return self._after_silence(row, now_ns)
            case _:
                return None

    def _after_silence(self, row: FailedMessage, now_ns: int) -> FailedMessage | None:
        assert row.sent_at_ns is not None  # it is out
        seconds = (now_ns - row.sent_at_ns) / NANOSECONDS
        if seconds >= self._settle_seconds + LONGEST_UNKNOWN_SECONDS:
            return row.give_up(f"nobody knows how its last retry ended; before: {row.error_details}")
        return row.mark_retry_success(now_ns) if seconds >= self._settle_seconds else None

    def _in(self, seconds: float) -> int:
        return self._clock.now_ns() + round(seconds * NANOSECONDS)
