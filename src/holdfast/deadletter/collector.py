"""Reads the dead-letter subscriptions and makes a row of each dead letter. Acks only what is durable.

Nothing here gives up: whatever fails is logged, handed back to the broker and tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.transport import Transport
from holdfast.deadletter.dead_letter import failed_message_from
from holdfast.deadletter.failures import FailureStore
from holdfast.errors import HoldfastError
from holdfast.model.message import Delivery

log = logging.getLogger("holdfast.deadletter")

T = TypeVar("T")

# How many dead letters are in memory at once per subscription; each may be 10 MB. They share one commit.
BATCH = 50

# How long one call waits for a dead letter. A dead letter or a stop ends it at once.
RECEIVE_WAIT_SECONDS = 30.0

# The pause after a failure: hardly noticed after a hiccup, at most a minute in a long outage.
SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0


class Collector:
    """`subscriptions` are the desk's own, by full path (see model.names.desk_subscription). Runs once."""

    def __init__(self, transport: Transport, store: FailureStore, clock: Clock, subscriptions: Sequence[str]) -> None:
        self._transport = transport
        self._store = store
        self._clock = clock
        self._subscriptions = tuple(subscriptions)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stop` is called or the task is cancelled. One subscription's trouble stays its own."""
        async with asyncio.TaskGroup() as group:
            for subscription in self._subscriptions:
                group.create_task(self._collect(subscription), name=f"collect {subscription}")
            await self._stopping.wait()

    def stop(self) -> None:
        """Makes `run` return. Waiting ends at once; what was received already is recorded and acked first."""
        self._stopping.set()

    async def _collect(self, subscription: str) -> None:
        failures = 0
        while not self._stopping.is_set():
            if await self._went_well(subscription):
                failures = 0
            else:
                failures += 1
                await self._pause(failures)

    async def _went_well(self, subscription: str) -> bool:
        try:
            return await self._collect_batch(subscription)
        except HoldfastError as error:
            log.warning("cannot collect from %s: %s", subscription, error)
        except Exception:
            log.exception("cannot collect from %s", subscription)
        return False

    async def _collect_batch(self, subscription: str) -> bool:
        """False when nothing of a batch could be recorded. After a part of it, there is no need to pause:
        one row that cannot be recorded must not hold up the others."""
        receiving = self._transport.receive(subscription, BATCH, RECEIVE_WAIT_SECONDS)
        deliveries = await self._unless_stopped(receiving)
        if not deliveries:
            return True
        recorded, refused = await self._record(deliveries)
        # If one of these fails, what is not acked comes again, and recording it again changes nothing.
        if recorded:
            await self._transport.ack(recorded)
        if refused:
            await self._transport.nack(refused)
        return bool(recorded)

    async def _record(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """The durable ones and the others. All at once, so that they share a commit; each fails alone."""
        outcomes = await asyncio.gather(*map(self._record_one, deliveries), return_exceptions=True)
        recorded: list[Delivery] = []
        refused: list[Delivery] = []
        errors: list[BaseException] = []
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                refused.append(delivery)
                errors.append(outcome)
            else:
                recorded.append(delivery)
        if errors:
            _log_refused(refused, errors[0])
        return recorded, refused

    async def _record_one(self, delivery: Delivery) -> None:
        # A row that was there already is as durable as a new one.
        await self._store.record([failed_message_from(delivery, self._clock.now_ns())])

    async def _pause(self, failures: int) -> None:
        seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures)
        until = self._clock.now_ns() + round(seconds * NANOSECONDS)
        await self._unless_stopped(self._clock.sleep_until(until))

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """What `waiting` gives, or None as soon as `stop` is called.

        A delivery that was on its way just then is not settled, so the broker gives it out again later.
        """
        task = asyncio.create_task(waiting)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)


def _log_refused(refused: Sequence[Delivery], error: BaseException) -> None:
    """One line for a batch, or an outage would fill the log. Our own errors need no traceback."""
    first = refused[0]
    log.warning(
        "cannot record %d dead letters of %s, message %s first: %s",
        len(refused),
        first.subscription,
        first.message.message_id,
        error,
        exc_info=None if isinstance(error, HoldfastError) else error,
    )
