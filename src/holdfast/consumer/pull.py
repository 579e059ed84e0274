"""Streaming pull: the same pipeline, fed from subscriptions instead of by HTTP.

Each subscription has a stream, which is opened again whenever it ends. What it brings waits here until the pipeline has
room, so that nothing is turned away; subscriptions take turns. What the broker must be told is leases.py's work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.leases import DEADLINE_SECONDS, Leases
from holdfast.consumer.pipeline import Pipeline, is_being_cancelled
from holdfast.consumer.settle import SHORTEST_DELAY_SECONDS, Settlement, Way
from holdfast.consumer.transport import Transport
from holdfast.errors import HoldfastError, Misconfigured, NotFound, StorageUnavailable
from holdfast.model.message import Delivery
from holdfast.model.names import is_replay, replay_subscription
from holdfast.model.outcome import Poisoned, Retry
from holdfast.settings import ConsumerSettings

log = logging.getLogger("holdfast.consumer")

# The pause before a stream is opened again: hardly noticed after a hiccup, half a minute in a long outage.
SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

# After so many the pause is the longest one.
MOST_FAILURES = 10

# Pub/Sub ends every stream after half an hour or so. One that lived this long is opened again without a word.
ORDINARY_LIFE_SECONDS = 10.0
ORDINARY_PAUSE_SECONDS = 0.1

# At a stop: so long may the broker take to hear how the last messages ended.
LAST_CALLS_SECONDS = 5.0


@asynccontextmanager
async def pulling(
    transport: Transport, pipeline: Pipeline, clock: Clock, settings: ConsumerSettings, subscriptions: Sequence[str]
) -> AsyncIterator[None]:
    """Pulls while it is entered. At the end nothing more is received, what was begun is finished, and the rest is given
    back. `subscriptions` are full paths; those through which a desk sends their messages again are read too, as soon as
    they are there."""
    turns = Turns(settings.queue_size + settings.max_workers)
    wanted = dict.fromkeys(subscriptions, False)
    for subscription in subscriptions:
        if not is_replay(subscription):
            wanted.setdefault(replay_subscription(subscription), True)
    pulls = [
        SubscriptionPull(transport, pipeline, turns, clock, settings, subscription, may_be_absent=may_be_absent)
        for subscription, may_be_absent in wanted.items()
    ]
    for pull in pulls:
        pull.start()
    try:
        yield
    finally:
        await asyncio.gather(*(pull.stop() for pull in pulls))


class Turns:
    """Shares the room in the pipeline: the next turn is always that of the subscription that has the fewest in it."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._pulls: list[SubscriptionPull] = []

    def join(self, pull: SubscriptionPull) -> None:
        self._pulls.append(pull)

    def take_up(self) -> None:
        """Whatever waits goes into the pipeline, as far as there is room."""
        room = self._room - sum([pull.running for pull in self._pulls])
        while room > 0 and (ready := [pull for pull in self._pulls if pull.waiting]):
            next_pull = min(ready, key=lambda pull: pull.running)
            count = min(room, len(next_pull.waiting)) if len(ready) == 1 else 1
            next_pull.begin(count)
            room -= count


class SubscriptionPull:
    def __init__(
        self,
        transport: Transport,
        pipeline: Pipeline,
        turns: Turns,
        clock: Clock,
        settings: ConsumerSettings,
        subscription: str,
        *,
        may_be_absent: bool = False,
    ) -> None:
        self.waiting: deque[Delivery] = deque()  # received, and not in the pipeline yet
        self._transport = transport
        self._pipeline = pipeline
        self._turns = turns
        self._clock = clock
        self._subscription = subscription
        self._may_be_absent = may_be_absent
        self._max_messages = settings.pull_max_messages
        self._max_bytes = settings.pull_max_megabytes * 1_000_000
        self._drain_seconds = settings.drain_seconds
        self._leases = Leases(transport, clock, subscription, settings.max_lease_seconds)
        self._behind: dict[str, deque[Delivery]] = {}  # by ordering key: what waits for the one that is under way
        self._under_way: dict[asyncio.Task[None], Delivery] = {}
        self._all_ended = asyncio.Event()
        self._opened_ns: int | None = None  # since when the stream is open, or was

    @property
    def running(self) -> int:
        return len(self._under_way)

    def start(self) -> None:
        self._turns.join(self)
        self._reader = asyncio.create_task(self._read(), name=f"pull {self._subscription}")
        self._keeper = asyncio.create_task(self._leases.keep(), name=f"keep the leases of {self._subscription}")

    # Receiving.

    async def _read(self) -> None:
        """Runs until cancelled. Nothing that a stream ends with is the end of this one, or of other subscriptions."""
        failures = 0
        while True:
            try:
                await self._read_stream()
            except (Exception, asyncio.CancelledError) as error:
                if is_being_cancelled():
                    raise
                had_its_time = self._had_its_time()
                failures = 0 if had_its_time else failures
                if self._may_be_absent and isinstance(error, NotFound):
                    failures = MOST_FAILURES
                elif not had_its_time or not isinstance(error, StorageUnavailable):
                    failures += 1
                    self._log_trouble(error)
            # The broker takes the end of a stream for the end of its client, unless it hears from us.
            with suppress(Exception):
                await self._leases.extend()
            await self._sleep(
                backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures) or ORDINARY_PAUSE_SECONDS
            )

    async def _read_stream(self) -> None:
        self._opened_ns = None
        async with self._transport.stream(
            self._subscription, self._max_messages, self._max_bytes, DEADLINE_SECONDS
        ) as stream:
            self._opened_ns = self._clock.now_ns()
            while True:
                while len(self._leases) >= self._max_messages or self._leases.bytes >= self._max_bytes:
                    await self._leases.wait_for_fewer()
                deliveries = await stream.receive()
                self._take_in(deliveries, stream.ordered)

    def _had_its_time(self) -> bool:
        since = self._opened_ns
        return since is not None and self._clock.now_ns() - since >= ORDINARY_LIFE_SECONDS * NANOSECONDS

    def _log_trouble(self, error: BaseException) -> None:
        expected = isinstance(error, HoldfastError)
        log.log(
            logging.CRITICAL if isinstance(error, Misconfigured) else logging.ERROR,
            "messages cannot be pulled",
            exc_info=None if expected else error,
            extra={"fields": {"subscription": self._subscription, "error": str(error)}},
        )

    def _take_in(self, deliveries: Sequence[Delivery], ordered: bool) -> None:
        new: Iterable[Delivery] = self._leases.take(deliveries)
        self.waiting.extend(self._first_of_keys(new) if ordered else new)
        self._turns.take_up()

    def _first_of_keys(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Of each ordering key one is under way; the others wait behind it."""
        for delivery in deliveries:
            key = delivery.message.ordering_key
            if key in self._behind:
                self._behind[key].append(delivery)
                continue
            if key:
                self._behind[key] = deque()
            yield delivery

    # Handling.

    def begin(self, count: int) -> None:
        for _ in range(count):
            delivery = self.waiting.popleft()
            task = asyncio.create_task(self._handle(delivery))
            self._under_way[task] = delivery
            task.add_done_callback(self._ended)
        self._all_ended.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not self._under_way:
            self._all_ended.set()
        self._turns.take_up()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            settlement = await self._pipeline.handle(delivery, Way.PULL)
        except (Exception, asyncio.CancelledError) as error:
            if is_being_cancelled():
                raise
            log.error(
                "a message could not be handled and comes again",
                exc_info=error,
                extra={"fields": {"subscription": self._subscription, "messageId": delivery.message.message_id}},
            )
            self._give_back(delivery, SHORTEST_DELAY_SECONDS)
            return
        if settlement.acks:
            self._leases.ack(delivery)
            self._go_on_after(delivery)
        else:
            self._give_up(delivery, settlement)

    def _go_on_after(self, delivery: Delivery) -> None:
        behind = self._behind.get(delivery.message.ordering_key)
        if behind:
            self.waiting.append(behind.popleft())
        elif behind is not None:
            del self._behind[delivery.message.ordering_key]

    def _give_up(self, delivery: Delivery, settlement: Settlement) -> None:
        """The broker has it again, and hears why. With all that wait behind it: they would otherwise come before it."""
        outcome = settlement.outcome
        if settlement.rejects and isinstance(outcome, Poisoned):
            self._leases.reject(delivery, outcome.reason, outcome.error)
        elif isinstance(outcome, Poisoned | Retry):
            self._leases.nack(delivery, settlement.delay_seconds, outcome.reason, outcome.error)
        else:
            self._leases.nack(delivery, settlement.delay_seconds)
        self._give_back_behind(delivery, settlement.delay_seconds)

    def _give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        self._leases.nack(delivery, delay_seconds)
        self._give_back_behind(delivery, delay_seconds)

    def _give_back_behind(self, delivery: Delivery, delay_seconds: float) -> None:
        for one in self._behind.pop(delivery.message.ordering_key, ()):
            self._leases.nack(one, delay_seconds)

    # Stopping.

    async def stop(self) -> None:
        self._reader.cancel()
        self._give_back_waiting()  # in the same step, so that none of them is begun any more
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._within(LAST_CALLS_SECONDS, self._leases.extend())  # as after every stream
        await self._drain()
        if not await self._within(LAST_CALLS_SECONDS, self._leases.settled()):
            self._log_stop("the broker does not answer; messages come again", len(self._leases))
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await self._leases.close()

    def _give_back_waiting(self) -> None:
        behind = [delivery for key in list(self._behind) for delivery in self._behind.pop(key)]
        for delivery in (*self.waiting, *behind):
            self._leases.nack(delivery)
        self.waiting.clear()

    async def _drain(self) -> None:
        if self._under_way and not await self._within(self._drain_seconds, self._all_ended.wait()):
            late = dict(self._under_way)
            self._log_stop("messages are given back unfinished", len(late))
            for task in late:
                task.cancel()
            await self._within(LAST_CALLS_SECONDS, asyncio.wait(late))  # a handler may catch even that
            for task, delivery in late.items():
                if task.cancelled() or not task.done():
                    self._leases.nack(delivery)

    def _log_stop(self, text: str, count: int) -> None:
        log.warning(text, extra={"fields": {"subscription": self._subscription, "count": count}})

    async def _within(self, seconds: float, waiting: Coroutine[Any, Any, object]) -> bool:
        """Whether it ended in time, well or not."""
        task, alarm = asyncio.create_task(waiting), asyncio.create_task(self._sleep(seconds))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return task.done()
        finally:
            for one in (task, alarm):
                one.cancel()
            await asyncio.gather(task, alarm, return_exceptions=True)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep_until(self._clock.now_ns() + round(seconds * NANOSECONDS))
