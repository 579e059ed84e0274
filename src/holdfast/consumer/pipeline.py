"""The life of a delivery, top to bottom: decode, route, handle, apply, settle; and what its end is called.

Every way out of `handle` is one of the five outcomes, and how it is settled: acked, recorded and acked, or sent again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.classify import classify
from holdfast.consumer.coalescer import Coalescer
from holdfast.consumer.counts import ConsumerCounts
from holdfast.consumer.documents import DocumentStore, Mark, Result, Write
from holdfast.consumer.error_kinds import kind_of
from holdfast.consumer.event import Event
from holdfast.consumer.failure_sink import FailedDelivery, FailureSink
from holdfast.consumer.fields import json_fields
from holdfast.consumer.message_log import LONGEST_ERROR, Hide, MessageLog, Trail
from holdfast.consumer.own_thread import on_own_thread
from holdfast.consumer.reading import EventReader
from holdfast.consumer.recent import RecentOutcome, RecentOutcomes
from holdfast.consumer.settle import Settlement, Way, must_be_recorded, not_recorded, settle
from holdfast.errors import Poison
from holdfast.model.failed_message import FailureClass
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Duplicate, Outcome, Poisoned, Retry
from holdfast.settings import ConsumerSettings

BACKPRESSURE = "backpressure_queue_full"
STORE_MISCONFIGURED = "STORE_MISCONFIGURED"
SECONDS_PER_DAY = 86_400


class Pipeline:
    """`failures` takes what would otherwise be sent again for ever. `subscription_topics` is what the topology knows;
    the user's own map in the settings wins over it. `hide` takes out of a text what is redacted of its message."""

    def __init__(
        self,
        app: Consumer,
        store: DocumentStore,
        failures: FailureSink,
        clock: Clock,
        settings: ConsumerSettings,
        subscription_topics: Mapping[str, str] | None = None,
        hide: Hide | None = None,
    ) -> None:
        self.recent = RecentOutcomes()
        self.counts = ConsumerCounts(app.topics)
        self._store = store
        self._failures = failures
        self._clock = clock
        self._settings = settings
        self._hide = hide
        self._log = MessageLog(settings, hide)
        self._reader = EventReader(app, settings, subscription_topics or {}, clock)
        self._dedupe_ns = round(settings.dedupe_days * SECONDS_PER_DAY * NANOSECONDS)
        self._coalescer = Coalescer(store, clock, settings)
        self._handlers = asyncio.Semaphore(settings.max_workers)  # of those that take their time
        self._in_house = 0
        self._handling = 0

    async def handle(self, delivery: Delivery, way: Way) -> Settlement:
        trail, started = Trail(), perf_counter()
        # Whoever pulls takes no more than fits. To turn a pulled one away would cost it an attempt.
        if way is Way.PUSH and self.waiting >= self._settings.queue_size + self._idle:
            outcome: Outcome = Retry(BACKPRESSURE, overloaded=True)
        else:
            self._in_house += 1
            try:
                outcome = await self._outcome(delivery, trail)
            finally:
                self._in_house -= 1
        self.counts.took(trail.topic, perf_counter() - started)
        settlement = await self._settle(delivery, trail, self._hidden(delivery.message, outcome), way)
        self._note(delivery, trail, settlement, way)
        return settlement

    def _hidden(self, message: Message, outcome: Outcome) -> Outcome:
        """Before anybody is told: an error goes into answers, logs and the desk."""
        if self._hide is None or not isinstance(outcome, Poisoned | Retry):
            return outcome
        return dataclasses.replace(outcome, error=self._hide(message, outcome.error))

    def refuse(self, error: Poison, status: int) -> Poisoned:
        """Logs and counts what never became a delivery, such as a push request that is no envelope."""
        outcome = Poisoned(error.reason, str(error), error.readable)
        nothing = Delivery(subscription="", message=Message(b""))
        self._note(nothing, Trail(error=error), Settlement(outcome, status), Way.PUSH)
        return outcome

    @property
    def waiting(self) -> int:
        """Messages that were taken in and wait for a handler or a transaction."""
        return max(0, self._in_house - self._handling - self._coalescer.in_transactions)

    @property
    def in_hands(self) -> int:
        """Messages that were taken in and have no outcome yet."""
        return self._in_house

    @property
    def store_retries(self) -> int:
        return self._coalescer.retries

    @property
    def errors(self) -> Mapping[str, int]:
        """Of the store and of what handlers call, by kind."""
        return Counter(self._coalescer.errors) + self.counts.handler_errors

    @property
    def _idle(self) -> int:
        """What is about to be taken up does not wait."""
        return max(0, self._settings.max_workers - self._handling - self._coalescer.transactions)

    async def close(self) -> None:
        """Waits for the transactions under way."""
        await self._coalescer.close()

    # The outcome.

    async def _outcome(self, delivery: Delivery, trail: Trail) -> Outcome:
        try:
            return await self._run(delivery, trail)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # somebody ends the process, or this coroutine
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            # Also a handler's own sys.exit, or a CancelledError of something that it waited for: one message must not
            # end the consumer. classify knows the known ones, and the rest is logged in full.
            trail.topic = trail.topic or self._reader.routes.topic_without_payload(delivery)
            return self._failed(error, trail)

    async def _run(self, delivery: Delivery, trail: Trail) -> Result:
        event, route, size = self._reader.read(delivery, trail)
        if route.side_effects and (done := await self._store.find_mark(trail.marks, self._clock.now_ns())):
            return Duplicate(done.path)
        trail.changes = changes = await self._changes(route, event)
        trail.in_store = True
        return await self._coalescer.apply(self._write(event, changes, trail.marks), size)

    async def _changes(self, route: Route, event: Event) -> tuple[Change, ...]:
        if route.on_thread:
            given = await self._taking_its_time(on_own_thread(route.name, partial(route.handler, event)))
        else:
            given = route.handler(event)
        if not isinstance(given, Upsert) and inspect.isawaitable(given):
            given = await self._taking_its_time(given)
        return checked_changes(route.name, given)

    async def _taking_its_time(self, handling: Awaitable[Any]) -> Any:
        async with self._handlers:
            self._handling += 1
            try:
                return await handling
            finally:
                self._handling -= 1

    def _write(self, event: Event, changes: tuple[Change, ...], marks: tuple[Mark, ...]) -> Write:
        now = self._clock.now_ns()
        return Write(changes, event.order, marks, mark_until_ns=now + self._dedupe_ns, now_ns=now)

    def _failed(self, error: BaseException, trail: Trail) -> Poisoned | Retry:
        verdict = classify(error)
        if not trail.in_store and (kind := kind_of(verdict)):  # else the store's own errors are counted already
            self.counts.handler_errors[kind] += 1
        trail.error = error
        trail.classified = verdict.classified
        return dataclasses.replace(verdict.outcome, by_store=trail.in_store)

    # Its end.

    async def _settle(self, delivery: Delivery, trail: Trail, outcome: Outcome, way: Way) -> Settlement:
        policy, topic = self._has_policy(delivery), bool(self._settings.dlq_topic)
        if not must_be_recorded(outcome, way, has_policy=policy, has_topic=topic):
            return settle(outcome, delivery.attempt)
        assert isinstance(outcome, Poisoned | Retry)
        reason, failure_class = STORE_MISCONFIGURED, FailureClass.MISCONFIGURED
        if isinstance(outcome, Poisoned):
            reason, failure_class = outcome.reason, FailureClass.POISON
        try:
            await self._failures.record(FailedDelivery(delivery, trail.topic, reason, outcome.error, failure_class))
        except Exception as error:  # noqa: BLE001 - whatever it is: not recorded is not acked
            trail.record_error = f"{self._failures.name}: {error}"
            return not_recorded(outcome, delivery.attempt)
        return settle(outcome, delivery.attempt, recorded=self._failures.name)

    def _has_policy(self, delivery: Delivery) -> bool:
        """Pub/Sub counts attempts only where there is a dead-letter policy."""
        told = self._settings.dead_letter_policy
        return delivery.attempt > 0 if told == "auto" else told == "always"

    def _note(self, delivery: Delivery, trail: Trail, settlement: Settlement, way: Way) -> None:
        """One log line and one count per delivery. The payload goes into neither."""
        outcome = settlement.outcome
        self.counts.ended(trail.topic, outcome.name)
        self.recent.add(
            outcome,
            RecentOutcome(
                message_id=delivery.message.message_id,
                topic=trail.topic,
                subscription=delivery.subscription,
                outcome=outcome.name,
                document=self._document(delivery.message, trail),
                error=outcome.error[:LONGEST_ERROR] if isinstance(outcome, Poisoned | Retry) else "",
                time_ns=self._clock.now_ns(),
            ),
        )
        self._log.write(delivery, trail, settlement, way)

    def _document(self, message: Message, trail: Trail) -> str:
        path = trail.changes[0].path if trail.changes else ""
        return self._hide(message, path) if self._hide is not None else path


def is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def checked_changes(handler: str, given: object) -> tuple[Change, ...]:
    """A forgotten return must not pass for "nothing to do". Fields become plain JSON here, so that what a handler got
    wrong is its own message's trouble and no neighbour's."""
    if isinstance(given, Upsert):
        return (Upsert(given.collection, given.id, json_fields(given.fields)),)
    listed = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
    changes: list[Change] = []
    for change in listed:
        if not isinstance(change, Upsert | Count):
            raise TypeError(f"{handler} returned {type(change).__name__}, not Upsert or Count")
        if isinstance(change, Count):
            change = dataclasses.replace(change, numbers=json_fields(change.numbers))
        changes.append(dataclasses.replace(change, fields=json_fields(change.fields)))
    if len({change.path for change in changes}) < len(changes):
        raise ValueError(f"{handler} changes one document twice")
    return tuple(changes)
