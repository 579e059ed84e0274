"""The lab's own clients, on Google's client library: publishers that keep an order for each key, and a puller that
acks, nacks and forgets. What goes wrong is written down and never the end of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.api_core import exceptions
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from holdfast.torture import traffic
from holdfast.torture.history import History

CALL_SECONDS = 4.0
AGAIN_SECONDS = 0.1
MOST_PULLED = 20

# Share of the deliveries that are nacked, and that are never heard of again.
NACKED = 0.1
FORGOTTEN = 0.003

# They leave open whether the broker did it.
UNCLEAR = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.Unknown,
    exceptions.InternalServerError,
    exceptions.Cancelled,
    exceptions.ResourceExhausted,
    exceptions.Aborted,
)

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


class Connection:
    def __init__(self, address: str, project: str) -> None:
        self._project = project
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=self._channel))
        self.subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=self._channel))

    async def close(self) -> None:
        await self._channel.close()

    def topic(self, short: str) -> str:
        return f"projects/{self._project}/topics/{short}"

    def subscription(self, short: str) -> str:
        return f"projects/{self._project}/subscriptions/{short}"


@asynccontextmanager
async def connected(address: str, project: str) -> AsyncIterator[Connection]:
    connection = Connection(address, project)
    try:
        yield connection
    finally:
        await connection.close()


class Publisher:
    """One ordering key. Each batch is sent until the broker has confirmed it, before the next one is begun."""

    def __init__(self, connection: Connection, topic: str, key: str, seed: int, history: History) -> None:
        self._connection = connection
        self._topic = connection.topic(topic)
        self._batches = traffic.batches(seed, key)
        self._history = history

    async def run(self, stop: asyncio.Event) -> None:
        for pause, batch in self._batches:
            if await _is_set_within(stop, pause):
                return
            await self._publish(batch)

    async def _publish(self, batch: Sequence[traffic.Planned]) -> None:
        names = [planned.name for planned in batch]
        messages = [
            PubsubMessage(data=planned.data(), attributes={"name": planned.name}, ordering_key=planned.key)
            for planned in batch
        ]
        while True:
            self._history.publishing(names)
            try:
                answer = await self._connection.publisher.publish(
                    topic=self._topic,
                    messages=messages,
                    retry=None,
                    timeout=CALL_SECONDS,
                )
            except UNCLEAR as error:
                self._history.publish_unclear(names, type(error).__name__)
                await asyncio.sleep(AGAIN_SECONDS)
            except exceptions.GoogleAPICallError as error:
                self._history.publish_unclear(names, type(error).__name__)
                self._history.trouble("unexpected", f"a publish was answered {type(error).__name__}: {error.message}")
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._history.published(names, list(answer.message_ids))
                return


class Puller:
    """One subscription, one pull after the other."""

    def __init__(self, connection: Connection, sub: str, seed: int, history: History) -> None:
        self._connection = connection
        self._sub = sub
        self._path = connection.subscription(sub)
        self._seed = seed
        self._history = history
        self.is_calm = False  # then it acks all that comes

    async def run(self) -> None:
        while True:
            try:
                answer = await self._connection.subscriber.pull(
                    subscription=self._path, max_messages=MOST_PULLED, retry=None, timeout=CALL_SECONDS
                )
            except UNCLEAR:
                await asyncio.sleep(AGAIN_SECONDS)
            except exceptions.GoogleAPICallError as error:
                self._history.trouble("unexpected", f"a pull was answered {type(error).__name__}: {error.message}")
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                await self._act_on(list(answer.received_messages))

    async def _act_on(self, received: Sequence[ReceivedMessage]) -> None:
        acked: list[ReceivedMessage] = []
        nacked: list[ReceivedMessage] = []
        for one in received:
            message = one.message
            attributes = dict(message.attributes)
            name = self._history.delivery(
                self._sub, message.message_id, one.delivery_attempt, message.ordering_key, attributes
            )
            whim = 1.0 if self.is_calm else traffic.whim(self._seed, self._sub, name, one.delivery_attempt)
            if whim < FORGOTTEN:
                continue
            (nacked if whim < NACKED else acked).append(one)
        if nacked:
            ack_ids = [one.ack_id for one in nacked]
            await self._call(
                self._connection.subscriber.modify_ack_deadline(
                    subscription=self._path, ack_ids=ack_ids, ack_deadline_seconds=0, retry=None, timeout=CALL_SECONDS
                )
            )
        if acked:
            await self._ack(acked)

    async def _ack(self, acked: Sequence[ReceivedMessage]) -> None:
        named = [(one.message.message_id, str(one.message.attributes["name"])) for one in acked]
        for message_id, name in named:
            self._history.acking(self._sub, message_id, name)
        ack_ids = [one.ack_id for one in acked]
        if await self._call(
            self._connection.subscriber.acknowledge(
                subscription=self._path, ack_ids=ack_ids, retry=None, timeout=CALL_SECONDS
            )
        ):
            for message_id, name in named:
                self._history.acked(self._sub, message_id, name)

    async def _call(self, call: Any) -> bool:
        """Whether it is confirmed."""
        try:
            await call
        except UNCLEAR:
            return False
        except exceptions.InvalidArgument:  # exactly-once: some were late, and come again
            return False
        except exceptions.GoogleAPICallError as error:
            self._history.trouble("unexpected", f"an ack was answered {type(error).__name__}: {error.message}")
            return False
        return True


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
