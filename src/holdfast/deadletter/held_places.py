"""Lets ordering keys go on whose message will not come back into its place, where the broker holds them for it.

The broker holds a key at a message that was dead-lettered (broker/held.py), and the desk is who knows how that ends.
The store notes the place of every failure that ends otherwise than there: replayed to a topic or under another key,
erased, cleaned up, never to be retried, or changed by people's own SQL. It does so in the transaction of that end, by
triggers; so whatever dies in between, the note is there, and releasing a key twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.outlet import Outlet, Release
from holdfast.errors import BadInput, HoldfastError, NotFound

log = logging.getLogger("holdfast.deadletter")

# Whatever ends a failure gives no signal; looking into an empty table is cheap.
LOOK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0

PAGE = 200


@dataclass(frozen=True, slots=True)
class FreedPlace:
    """Of a message that was dead-lettered in this subscription. `is_taken`: a failure with this place is still open."""

    id: int
    subscription: str
    message_id: str
    is_taken: bool = False


class PlaceStore(Protocol):
    async def freed_places(self, limit: int, after_id: int = 0) -> Sequence[FreedPlace]:
        """Places of messages with an ordering key whose failures have ended, by id. Of one that was out on a retry at
        its end there is none: its retry is acked, or comes back as another failure."""
        ...

    async def forget_places(self, ids: Sequence[int]) -> None: ...


class HeldPlaces:
    def __init__(self, store: PlaceStore, outlet: Outlet, clock: Clock) -> None:
        self._store = store
        self._outlet = outlet
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            try:
                await self.free()
                failures = 0
            except Exception as error:
                failures += 1
                trace = None if isinstance(error, HoldfastError) else error
                log.warning("cannot release ordering keys now: %s", error, exc_info=trace)
            seconds = backoff_seconds(LOOK_SECONDS, LONGEST_PAUSE_SECONDS, failures) if failures else LOOK_SECONDS
            await self._clock.sleep_until(self._clock.now_ns() + round(seconds * NANOSECONDS))

    async def free(self) -> None:
        """All that can be; what may be held a moment later stays noted."""
        after = 0
        while places := await self._store.freed_places(PAGE, after):
            after = places[-1].id
            done = await asyncio.gather(*(self._is_done(place) for place in places))
            await self._store.forget_places([place.id for place, is_over in zip(places, done, strict=True) if is_over])

    async def _is_done(self, place: FreedPlace) -> bool:
        if place.is_taken:  # the end of that one will be noted too
            return True
        try:
            release = await self._outlet.release(place.subscription, place.message_id)
        except (NotFound, BadInput):  # nothing waits in a subscription that is gone
            return True
        if release is Release.RELEASED:
            fields = {"subscription": place.subscription, "messageId": place.message_id}
            log.info("an ordering key goes on without its failed message", extra={"fields": fields})
        return release is not Release.NOT_YET
