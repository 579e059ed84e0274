"""The life of a delivery, top to bottom: decode, route, handle, apply; and what its end is called.

Every way out of `handle` is one of the five outcomes. Answering the sender is settle.py's work.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.classify import classify
from holdfast.consumer.coalescer import Coalescer
from holdfast.consumer.decode import decode_event
from holdfast.consumer.documents import DocumentStore, Mark, Result, Write
from holdfast.consumer.event import Event
from holdfast.consumer.fields import json_fields
from holdfast.consumer.identity import logical_key, marks_of
from holdfast.consumer.recent import RecentOutcome, RecentOutcomes
from holdfast.consumer.routes import UNROUTABLE, Routes
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Duplicate, Outcome, Poisoned, Retry
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import ConsumerSettings

log = logging.getLogger("holdfast.consumer")

BACKPRESSURE = "backpressure_queue_full"
SECONDS_PER_DAY = 86_400

# An error's text may quote what it met; this much explains it without carrying a payload into the log.
LONGEST_LOGGED_ERROR = 300
# The innermost calls show where an unclassified error came from.
LOGGED_FRAMES = 20


@dataclass(slots=True)
class _Trail:
    """What became known of a delivery on its way, for the log."""

    topic: str = ""
    handler: str = ""
    changes: tuple[Change, ...] = ()
    marks: tuple[Mark, ...] = ()
    error_type: str = ""
    traceback: str = ""


class Pipeline:
    """`subscription_topics` is what the topology knows; the user's own map in the settings wins over it."""

    def __init__(
        self,
        app: Consumer,
        store: DocumentStore,
        clock: Clock,
        settings: ConsumerSettings,
        subscription_topics: Mapping[str, str] | None = None,
    ) -> None:
        self.recent = RecentOutcomes()
        self._app = app
        self._store = store
        self._clock = clock
        self._env = settings.env
        self._routes = Routes(
            {**(subscription_topics or {}), **settings.subscription_topic_map},
            settings.system_events_topic,
            app.topics[0] if len(app.topics) == 1 else "",
        )
        self._dedupe_ns = round(settings.dedupe_days * SECONDS_PER_DAY * NANOSECONDS)
        self._coalescer = Coalescer(store, clock, settings)
        self._handlers = asyncio.Semaphore(settings.max_workers)  # of those that take their time
        self._workers = settings.max_workers
        self._queue_size = settings.queue_size
        self._in_house = 0
        self._handling = 0

    async def handle(self, delivery: Delivery) -> Outcome:
        trail = _Trail()
        if self.waiting >= self._queue_size + self._idle:
            outcome: Outcome = Retry(BACKPRESSURE, overloaded=True)
        else:
            self._in_house += 1
            try:
                outcome = await self._attempt(delivery, trail)
            finally:
                self._in_house -= 1
        self._record(delivery, trail, outcome)
        return outcome

    @property
    def waiting(self) -> int:
        """Messages that were taken in and wait for a handler or a transaction."""
        return max(0, self._in_house - self._handling - self._coalescer.in_transactions)

    @property
    def _idle(self) -> int:
        """What is about to be taken up does not wait."""
        return max(0, self._workers - self._handling - self._coalescer.transactions)

    async def close(self) -> None:
        """Waits for the transactions under way."""
        await self._coalescer.close()

    def refuse(self, error: Poison) -> Poisoned:
        """Logs and counts what never became a delivery, such as a push request that is no envelope."""
        outcome = Poisoned(error.reason, str(error), error.readable)
        trail = _Trail(error_type=type(error).__name__)
        self._record(Delivery(subscription="", message=Message(b"")), trail, outcome)
        return outcome

    async def _attempt(self, delivery: Delivery, trail: _Trail) -> Outcome:
        try:
            return await self._run(delivery, trail)
        except Exception as error:  # noqa: BLE001 - classify knows the known ones, and the rest is logged in full
            verdict = classify(error)
            trail.error_type = type(error).__name__
            if not verdict.classified:
                trail.error_type = f"unclassified: {trail.error_type}"
                # The frames without the error's own text, which is bounded and logged apart.
                trail.traceback = "".join(traceback.format_tb(error.__traceback__)[-LOGGED_FRAMES:])
            return verdict.outcome

    async def _run(self, delivery: Delivery, trail: _Trail) -> Result:
        event = decode_event(delivery)
        trail.topic = topic = self._routes.topic_of(event)
        route = self._route(topic)
        trail.handler = route.name
        event = dataclasses.replace(event, topic=topic)
        key = logical_key(self._env, event, route)
        marks = marks_of(event, key, route.marks)
        trail.marks = marks
        event = dataclasses.replace(event, idempotency_key=key or event.message_id)
        if route.side_effects and (done := await self._store.find_mark(marks, self._clock.now_ns())):
            return Duplicate(done.path)
        changes = await self._changes(route, event)
        trail.changes = changes
        return await self._coalescer.apply(self._write(event, changes, marks), len(delivery.message.data))

    def _route(self, topic: str) -> Route:
        route = self._app.route(topic)
        if route is None:
            raise Poison(f"topic: there is no handler for {topic[:300]!r}", reason=UNROUTABLE)
        return route

    async def _changes(self, route: Route, event: Event) -> tuple[Change, ...]:
        given = route.handler(event)
        if inspect.isawaitable(given):
            async with self._handlers:
                self._handling += 1
                try:
                    given = await given
                finally:
                    self._handling -= 1
        return checked_changes(route.name, given)

    def _write(self, event: Event, changes: tuple[Change, ...], marks: tuple[Mark, ...]) -> Write:
        now = self._clock.now_ns()
        return Write(changes, event.order, marks, mark_until_ns=now + self._dedupe_ns, now_ns=now)

    def _record(self, delivery: Delivery, trail: _Trail, outcome: Outcome) -> None:
        """One log record and one count per delivery. The payload goes into neither."""
        error = outcome.error[:LONGEST_LOGGED_ERROR] if isinstance(outcome, Poisoned | Retry) else ""
        self.recent.add(
            outcome,
            RecentOutcome(
                message_id=delivery.message.message_id,
                topic=trail.topic,
                subscription=delivery.subscription,
                outcome=outcome.name,
                document=trail.changes[0].path if trail.changes else "",
                error=error,
                time_ns=self._clock.now_ns(),
            ),
        )
        level = logging.ERROR if isinstance(outcome, Poisoned | Retry) else logging.INFO
        log.log(level, "message %s", outcome.name, extra={"fields": _log_fields(delivery, trail, outcome, error)})


def checked_changes(handler: str, given: object) -> tuple[Change, ...]:
    """A forgotten return must not pass for "nothing to do". Fields become plain JSON here, so that what a handler got
    wrong is its own message's trouble and no neighbour's."""
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


def _log_fields(delivery: Delivery, trail: _Trail, outcome: Outcome, error: str) -> dict[str, object]:
    message = delivery.message
    fields: dict[str, object] = {
        "subscription": delivery.subscription,
        "topic": trail.topic,
        "messageId": message.message_id,
        "publishTime": format_rfc3339(message.publish_time_ns) if message.publish_time_ns else "",
        "deliveryAttempt": delivery.attempt,
        "handler": trail.handler,
        "outcome": outcome.name,
        "write_kind": ",".join(type(change).__name__.lower() for change in trail.changes),
        "doc_path": ",".join(change.path for change in trail.changes),
        "idempotency_doc": trail.marks[-1].path if trail.marks else "",
    }
    if isinstance(outcome, Poisoned | Retry):
        fields |= {"error_type": trail.error_type, "error": error, "retryable": isinstance(outcome, Retry)}
    if isinstance(outcome, Poisoned):
        fields["failure_reason"] = outcome.reason
    if isinstance(outcome, Retry):
        fields |= {"misconfigured": outcome.misconfigured, "overloaded": outcome.overloaded}
    if trail.traceback:
        fields["traceback"] = trail.traceback
    return fields
