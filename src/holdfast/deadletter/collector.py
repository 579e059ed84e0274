"""Reads the dead-letter subscriptions and has each dead letter recorded. Acks only what is durable.

Nothing here gives up: whatever fails is logged, handed back to the broker and tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.transport import Transport
from holdfast.deadletter.dead_letter import arrival_of
from holdfast.deadletter.inbox import Inbox
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.sources import Sources
from holdfast.errors import HoldfastError, StorageUnavailable
from holdfast.model.message import Delivery

log = logging.getLogger("holdfast.deadletter")

T = TypeVar("T")

# What is in our hands at once, for each subscription; the broker sends no more. One message may have 10 MB.
MOST_MESSAGES = 2000
MOST_BYTES = 32_000_000

# What shares one commit: more gains little, and would keep others waiting for the store.
BATCH = 500
BATCH_BYTES = 8_000_000

# How long the broker leaves us a dead letter: more than the longest pause, so that what waits does not come again.
DEADLINE_SECONDS = 60

# The pause after a failure: hardly noticed after a hiccup, half a minute in a long outage.
SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

# Pub/Sub ends every stream after half an hour or so. One that lived this long is opened again without a word.
ORDINARY_LIFE_SECONDS = 10.0

# How often subscriptions are looked for where the broker does not tell of new ones.
LOOK_AGAIN_SECONDS = 60.0


class Collector:
    """Runs once."""

    def __init__(self, transport: Transport, intake: Intake, clock: Clock, sources: Sources) -> None:
        self._transport = transport
        self._intake = intake
        self._clock = clock
        self._sources = sources
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._inboxes: dict[str, Inbox] = {}

    async def run(self) -> None:
        """Until `stop` is called or the task is cancelled. One subscription's trouble stays its own."""
        unwatch = self._transport.watch_subscriptions(self._changed.set)
        try:
            async with asyncio.TaskGroup() as group:
                while not self._stopping.is_set():
                    self._changed.clear()
                    self._read(await self._unless_stopped(self._found()), group)
                    await self._unless_stopped(self._until_changed())
        finally:
            unwatch()

    def stop(self) -> None:
        """Makes `run` return. Waiting ends at once; what was received already is recorded and acked first."""
        self._stopping.set()
        for subscription, reader in self._readers.items():
            if subscription in self._inboxes:
                self._inboxes[subscription].close()
            else:  # it has nothing in its hands
                reader.cancel()

    # Finding what to read.

    async def _found(self) -> Collection[str] | None:
        try:
            return await self._sources.find()
        except HoldfastError as error:
            log.warning("cannot look for dead-letter subscriptions: %s", error)
        except Exception:
            log.exception("cannot look for dead-letter subscriptions")
        return None

    def _read(self, found: Collection[str] | None, group: asyncio.TaskGroup) -> None:
        if found is None:  # not known: go on with what there was
            return
        for gone in self._readers.keys() - found:
            self._readers.pop(gone).cancel()
        for new in found - self._readers.keys():
            self._readers[new] = group.create_task(self._collect(new), name=f"collect {new}")

    async def _until_changed(self) -> None:
        timer = asyncio.create_task(self._clock.sleep_until(self._in(LOOK_AGAIN_SECONDS)))
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({timer, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            changed.cancel()

    # Reading one of them.

    async def _collect(self, subscription: str) -> None:
        failures = 0
        while not self._stopping.is_set():
            opened_ns = self._clock.now_ns()
            try:
                await self._read_stream(subscription)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next stream may do better
                had_its_time = self._clock.now_ns() - opened_ns >= ORDINARY_LIFE_SECONDS * NANOSECONDS
                failures = 1 if had_its_time else failures + 1
                if not had_its_time or not isinstance(error, StorageUnavailable):
                    _log_trouble(f"cannot collect from {subscription}", error)
            await self._pause(failures)

    async def _read_stream(self, subscription: str) -> None:
        async with self._transport.stream(subscription, MOST_MESSAGES, MOST_BYTES, DEADLINE_SECONDS) as stream:
            inbox = self._inboxes[subscription] = Inbox(stream)
            try:
                await self._empty(inbox)
            finally:
                del self._inboxes[subscription]
                inbox.close()
                await inbox.closed()

    async def _empty(self, inbox: Inbox) -> None:
        failures = 0
        while deliveries := await inbox.take(BATCH, BATCH_BYTES):
            refused = await self._settle(deliveries)
            if len(refused) < len(deliveries):
                # A row that cannot be recorded must not hold up the others, so there is no pause.
                failures = 0
                await self._give_back(refused, 1)
                continue
            failures += 1
            await self._give_back(refused + inbox.take_all(), failures)
            await self._pause(failures)

    async def _settle(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Gives those that could not be recorded."""
        refused, error = await self._record(deliveries)
        if error is not None:
            first = refused[0].message.message_id
            name = refused[0].subscription
            _log_trouble(f"cannot record {len(refused)} dead letters of {name}, message {first} first", error)
        gone = {delivery.ack_id for delivery in refused}
        # If this fails, what is not acked comes again, and recording it again changes nothing.
        await self._transport.ack([delivery for delivery in deliveries if delivery.ack_id not in gone])
        return refused

    async def _record(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], Exception | None]:
        """All at once, so that they share a commit. When that fails, halves are tried, until what cannot be recorded is
        alone; but not where the store takes none at all."""
        now_ns = self._clock.now_ns()
        try:
            await self._intake.record([arrival_of(delivery, now_ns) for delivery in deliveries])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others go on
            if len(deliveries) == 1:
                return list(deliveries), error
            return await self._record_halves(deliveries, error)
        return [], None

    async def _record_halves(
        self, deliveries: Sequence[Delivery], error: Exception
    ) -> tuple[list[Delivery], Exception | None]:
        middle = len(deliveries) // 2
        if isinstance(error, StorageUnavailable) and not await self._takes_either(deliveries[0], deliveries[-1]):
            return list(deliveries), error
        first, first_error = await self._record(deliveries[:middle])
        second, second_error = await self._record(deliveries[middle:])
        return first + second, first_error or second_error

    async def _takes_either(self, *deliveries: Delivery) -> bool:
        for delivery in deliveries:
            refused, _ = await self._record([delivery])
            if not refused:
                return True
        return False

    async def _give_back(self, refused: Sequence[Delivery], failures: int) -> None:
        if refused:
            seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures)
            await self._transport.nack(refused, seconds)

    # Waiting.

    async def _pause(self, failures: int) -> None:
        if failures:
            seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures)
            await self._unless_stopped(self._clock.sleep_until(self._in(seconds)))

    def _in(self, seconds: float) -> int:
        return self._clock.now_ns() + round(seconds * NANOSECONDS)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """What `waiting` gives, or None as soon as `stop` is called."""
        task = asyncio.create_task(waiting)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)


def _log_trouble(what: str, error: Exception) -> None:
    """One line, or an outage would fill the log. Our own errors need no traceback."""
    log.warning("%s: %s", what, error, exc_info=None if isinstance(error, HoldfastError) else error)
