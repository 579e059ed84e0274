"""Push delivery: each push subscription's messages go to its endpoint by HTTP POST, and the answer settles them.

A message waits in the durable log, never here: what is not settled when the process ends is sent again by the next one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from urllib.parse import unquote

from holdfast.broker.leases import Failure, Lease, NoHolder
from holdfast.broker.push_client import Answer, NoAnswer, PushClient
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.wire import decode
from holdfast.model.message import Message
from holdfast.model.resources import Subscription
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import PushSettings

log = logging.getLogger("holdfast.broker.push")

# The statuses that Cloud Pub/Sub takes as an acknowledgement.
ACKNOWLEDGED = frozenset({102, 200, 201, 202, 204})

# With these headers a consumer tells our broker what Pub/Sub's protocol has no words for. Strict mode ignores them.
DEAD_LETTER_HEADER = "Holdfast-Dead-Letter"  # "now"
REASON_HEADER = "Holdfast-Failure-Reason"
ERROR_HEADER = "Holdfast-Error"  # percent-encoded

# Requests at once for each core, where the setting leaves it to us: they wait for the network, not for the processor.
REQUESTS_PER_CORE = 32

# A subscription whose messages could not be read is tried again after this long.
PAUSE_AFTER_ERROR_SECONDS = 1.0

# Running requests get this long to end when the broker stops.
GRACE_SECONDS = 5.0


class PushDelivery:
    """Keeps one sender for each push subscription there is, from `start` to `stop`."""

    def __init__(self, broker: Broker, client: PushClient, settings: PushSettings, *, strict: bool) -> None:
        self._broker = broker
        self._client = client
        self._settings = settings
        self._strict = strict
        workers = settings.workers or REQUESTS_PER_CORE * (os.cpu_count() or 1)
        self._workers = asyncio.Semaphore(workers)
        self._senders: dict[SubscriptionQueue, _Sender] = {}
        self._watcher: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """No new requests; running ones get a bounded time."""
        if self._watcher is not None:
            self._watcher.cancel()
        await asyncio.gather(*(sender.stop(GRACE_SECONDS) for sender in self._senders.values()))

    async def _watch(self) -> None:
        while True:
            seen = self._broker.subscriptions_changed.version
            wanted = {queue for queue in self._broker.queues if queue.config.push}
            for queue in wanted - self._senders.keys():
                self._senders[queue] = _Sender(queue, self._client, self._settings, self._workers, strict=self._strict)
            for queue in self._senders.keys() - wanted:
                await self._senders.pop(queue).stop(0)
            await self._broker.subscriptions_changed.wait_beyond(seen)


class _Sender:
    """Sends one subscription's messages, several at a time."""

    def __init__(
        self,
        queue: SubscriptionQueue,
        client: PushClient,
        settings: PushSettings,
        workers: asyncio.Semaphore,
        *,
        strict: bool,
    ) -> None:
        self._queue = queue
        self._client = client
        self._timeout_seconds = settings.timeout_seconds
        self._workers = workers
        self._own = asyncio.Semaphore(settings.concurrency)
        self._strict = strict
        self._requests: set[asyncio.Task[None]] = set()
        self._loop = asyncio.create_task(self._run())

    async def stop(self, grace_seconds: float) -> None:
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=grace_seconds)
            for request in late:
                request.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _run(self) -> None:
        while not self._queue.deleted:
            try:
                await self._send_next()
            except Exception as error:  # noqa: BLE001 - this subscription's trouble, which must not end its sender
                log.error(
                    "messages could not be read for push",
                    extra={"fields": {"subscription": self._queue.config.name, "error": str(error)}},
                )
                await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)

    async def _send_next(self) -> None:
        """A place is taken before a message is, so that no lease runs while its message waits for a place."""
        await self._queue.wait_ready()
        await self._own.acquire()
        try:
            await self._workers.acquire()
        except BaseException:
            self._own.release()
            raise
        leases: list[Lease] = []
        try:
            leases = await self._queue.take(1, 1, NoHolder())
        finally:
            if not leases:
                self._release_places()
        for lease in leases:
            request = asyncio.create_task(self._send(lease))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    def _release_places(self) -> None:
        self._workers.release()
        self._own.release()

    async def _send(self, lease: Lease) -> None:
        config = self._queue.config
        try:
            if config.push is None:  # turned into a pull subscription meanwhile
                self._queue.give_back([lease])
                return
            result = await self._client.post(
                config.push.endpoint,
                push_envelope(config, decode(lease.body), lease.attempt),
                min(self._timeout_seconds, config.ack_deadline_seconds),
            )
            self._settle(lease, result)
        except asyncio.CancelledError:  # stopping: the endpoint may or may not have it, so it counts as an attempt
            self._queue.fail(lease, Failure(error="the broker stopped before an answer came", status="stopped"))
            raise
        finally:
            self._release_places()

    def _settle(self, lease: Lease, result: Answer | NoAnswer) -> None:
        if isinstance(result, Answer) and result.status in ACKNOWLEDGED:
            self._queue.ack_later([lease.ack_id])
            return
        failure = failure_of(result, strict=self._strict)
        log.warning(
            "push failed",
            extra={
                "fields": {
                    "subscription": self._queue.config.name,
                    "deliveryAttempt": lease.attempt,
                    "status": failure.status,
                    "error": failure.error,
                    "deadLetterNow": failure.dead_letter_now,
                }
            },
        )
        self._queue.fail(lease, failure)


def push_envelope(config: Subscription, message: Message, attempt: int) -> bytes:
    """Pub/Sub's wrapped form. Both spellings of id and time are there because Pub/Sub sends both."""
    publish_time = format_rfc3339(message.publish_time_ns)
    inner: dict[str, object] = {
        "data": base64.b64encode(message.data).decode(),
        "messageId": message.message_id,
        "message_id": message.message_id,
        "publishTime": publish_time,
        "publish_time": publish_time,
    }
    if message.attributes:
        inner["attributes"] = dict(message.attributes)
    if message.ordering_key:
        inner["orderingKey"] = message.ordering_key
    envelope: dict[str, object] = {"message": inner, "subscription": config.name}
    if config.dead_letter is not None:
        envelope["deliveryAttempt"] = attempt
    return json.dumps(envelope).encode()


def failure_of(result: Answer | NoAnswer, *, strict: bool) -> Failure:
    if isinstance(result, NoAnswer):
        return Failure(error=result.error, status=result.kind)
    if strict:
        return Failure(error=f"the endpoint answered {result.status}", status=str(result.status))
    return Failure(
        error=unquote(result.headers.get(ERROR_HEADER, "")) or f"the endpoint answered {result.status}",
        status=str(result.status),
        reason=result.headers.get(REASON_HEADER, ""),
        dead_letter_now=result.headers.get(DEAD_LETTER_HEADER, "").lower() == "now",
        retry_after_seconds=_retry_after(result.headers.get("Retry-After", "")),
    )


def _retry_after(value: str) -> float | None:
    """Seconds only: the other form, a date, depends on two clocks. At most Pub/Sub's longest backoff."""
    return min(float(value), 600.0) if value.isascii() and value.isdigit() else None
