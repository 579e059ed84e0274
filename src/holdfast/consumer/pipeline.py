"""The life of a delivery, top to bottom: decode, route, handle, apply; and what its end is called.

Every way out of `handle` is one of the five outcomes. Answering the sender is settle.py's work.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.app import Consumer, Handler, Upsert, handler_name
from holdfast.consumer.classify import classify
from holdfast.consumer.decode import decode_event
from holdfast.consumer.documents import DocumentStore, Write
from holdfast.consumer.event import Event
from holdfast.consumer.recent import RecentOutcome, RecentOutcomes
from holdfast.consumer.routes import UNROUTABLE, Routes
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale
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
    document: str = ""
    idempotency_key: str = ""
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
        self._workers = asyncio.Semaphore(settings.max_workers)
        self._room = settings.max_workers + settings.queue_size
        self._in_house = 0

    async def handle(self, delivery: Delivery) -> Outcome:
        trail = _Trail()
        if self._in_house >= self._room:
            outcome: Outcome = Retry(BACKPRESSURE, overloaded=True)
        else:
            self._in_house += 1
            try:
                outcome = await self._attempt(delivery, trail)
            finally:
                self._in_house -= 1
        self._record(delivery, trail, outcome)
        return outcome

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

    async def _run(self, delivery: Delivery, trail: _Trail) -> Applied | Duplicate | Stale:
        event = decode_event(delivery)
        trail.topic = topic = self._routes.topic_of(event)
        event = dataclasses.replace(event, topic=topic)
        handler = self._handler(topic)
        trail.handler = handler_name(handler)
        async with self._workers:
            upsert = await _upsert(handler, event)
            write = self._write(event, upsert)
            trail.document, trail.idempotency_key = write.path, write.dedupe_keys[-1]
            return await self._store.apply(write)

    def _handler(self, topic: str) -> Handler:
        handler = self._app.handler(topic)
        if handler is None:
            raise Poison(f"topic: there is no handler for {topic[:300]!r}", reason=UNROUTABLE)
        return handler

    def _write(self, event: Event, upsert: Upsert) -> Write:
        now = self._clock.now_ns()
        return Write(
            collection=upsert.collection,
            document_id=upsert.id,
            fields=upsert.fields,
            order=event.order,
            dedupe_keys=dedupe_keys(self._env, event),
            dedupe_until_ns=now + self._dedupe_ns,
            now_ns=now,
        )

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
                document=trail.document,
                error=error,
                time_ns=self._clock.now_ns(),
            ),
        )
        level = logging.ERROR if isinstance(outcome, Poisoned | Retry) else logging.INFO
        log.log(level, "message %s", outcome.name, extra={"fields": _log_fields(delivery, trail, outcome, error)})


async def _upsert(handler: Handler, event: Event) -> Upsert:
    result = handler(event)
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, Upsert):
        # A forgotten return must not pass for "nothing to do".
        raise TypeError(f"{handler_name(handler)} returned {type(result).__name__}, not Upsert")
    return result


def dedupe_keys(env: str, event: Event) -> tuple[str, ...]:
    """The first stops redelivery of one message, the second the same event published again."""
    keys = [f"message:{event.message_id}"]
    if event.event_id:
        keys.append(f"event:{env}__{event.topic}__{event.event_id}")
    return tuple(keys)


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
        "doc_path": trail.document,
        "idempotency_key": trail.idempotency_key,
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
