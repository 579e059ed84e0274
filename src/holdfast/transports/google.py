"""Any Pub/Sub over gRPC: Cloud Pub/Sub, Google's emulator, or another Holdfast.

What is done for every message goes through plain gRPC calls and raw protobuf classes: the wrappers that
google-cloud-pubsub has around both cost several times more than all the rest of receiving a message.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Self, TypeVar

import grpc
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import pubsub

from holdfast import errors
from holdfast.backoff import backoff_seconds
from holdfast.broker.wire import encode
from holdfast.broker.wire_resources import subscription_to_pb
from holdfast.clock import NANOSECONDS
from holdfast.consumer.settle import failure_headers
from holdfast.model import push_headers
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Delivery, Message
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.model.resources import Subscription
from holdfast.transports.ack_ids import requests_for, whole_seconds
from holdfast.transports.calls import CALL, CALL_SECONDS, AckIdsFailed, NoAnswerInTime, translated
from holdfast.transports.google_outlet import GoogleOutlet

T = TypeVar("T")

# To a broker that is not Google's cloud, for which the client library brings its own.
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    # A stream that is silent because its broker's machine is gone ends after a while, as with Google's own options.
    ("grpc.keepalive_time_ms", 30_000),
    # gRPC's own two minutes are long for a broker that has been back for as long.
    ("grpc.max_reconnect_backoff_ms", 5_000),
]

# Exactly-once delivery: acks that may still succeed are sent again.
ACK_TRIES = 5
SHORTEST_ACK_PAUSE_SECONDS = 0.1
LONGEST_ACK_PAUSE_SECONDS = 2.0

_PullRequest: Any = pubsub.PullRequest.pb()
_PullResponse: Any = pubsub.PullResponse.pb()
_AcknowledgeRequest: Any = pubsub.AcknowledgeRequest.pb()
_ModifyAckDeadlineRequest: Any = pubsub.ModifyAckDeadlineRequest.pb()
_StreamingPullRequest: Any = pubsub.StreamingPullRequest.pb()
_StreamingPullResponse: Any = pubsub.StreamingPullResponse.pb()


class GoogleTransport:
    def __init__(self, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient, address: str = "") -> None:
        """`address` is the broker's HOST:PORT where it is not Cloud Pub/Sub."""
        self._publisher = publisher
        self._subscriber = subscriber
        self._outlet = GoogleOutlet(publisher, subscriber, address)
        transport: Any = subscriber.transport
        channel = transport.grpc_channel
        self._pull = _unary(channel, "Pull", _PullRequest, _PullResponse)
        self._acknowledge = _unary(channel, "Acknowledge", _AcknowledgeRequest, Empty)
        self._modify_ack_deadline = _unary(channel, "ModifyAckDeadline", _ModifyAckDeadlineRequest, Empty)
        self._streaming_pull = channel.stream_stream(
            _method("StreamingPull"), _StreamingPullRequest.SerializeToString, _StreamingPullResponse.FromString
        )
        # The same for all streams: flow control goes on where a broken one ended.
        self._client_id = str(uuid.uuid4())

    @classmethod
    def connect(cls, emulator_host: str) -> Self:
        """An empty host means Cloud Pub/Sub, with the machine's own credentials."""
        if not emulator_host:
            return cls._connect_to_cloud()
        return cls(
            PublisherAsyncClient(
                transport=PublisherGrpcAsyncIOTransport(
                    channel=grpc.aio.insecure_channel(emulator_host, options=CHANNEL_OPTIONS)
                )
            ),
            SubscriberAsyncClient(
                transport=SubscriberGrpcAsyncIOTransport(
                    channel=grpc.aio.insecure_channel(emulator_host, options=CHANNEL_OPTIONS)
                )
            ),
            emulator_host,
        )

    @classmethod
    def _connect_to_cloud(cls) -> Self:
        try:
            return cls(PublisherAsyncClient(), SubscriberAsyncClient())
        except DefaultCredentialsError as error:
            raise errors.SettingError(
                "emulator_host",
                "",
                "that means Cloud Pub/Sub, and this machine has no Google Cloud credentials. Set PUBSUB_EMULATOR_HOST "
                "to a broker's HOST:PORT, or log in with `gcloud auth application-default login`",
            ) from error

    async def ensure_topic(self, topic: str) -> bool:
        return await _created(self._publisher.create_topic(name=topic, retry=None, timeout=CALL_SECONDS))

    async def ensure_subscription(self, subscription: Subscription) -> bool:
        request = subscription_to_pb(subscription)
        for field in ("state", "expiration_policy"):  # the service's to say
            request.ClearField(field)
        wrapped = pubsub.Subscription.wrap(request)
        return await _created(self._subscriber.create_subscription(request=wrapped, retry=None, timeout=CALL_SECONDS))

    async def list_topics(self, project: str) -> Sequence[str]:
        pages = await translated(self._publisher.list_topics(project=project, **CALL))
        return await translated(_names(pages))

    async def list_subscriptions(self, project: str) -> Sequence[str]:
        pages = await translated(self._subscriber.list_subscriptions(project=project, **CALL))
        return await translated(_names(pages))

    def watch_subscriptions(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def publish(self, topic: str, message: Message) -> str:
        wrapped = pubsub.PubsubMessage.deserialize(encode(message))
        metadata = ((push_headers.ONCE, "true"),) if REPLAY_ID in message.attributes else ()
        response = await translated(
            self._publisher.publish(
                topic=topic, messages=[wrapped], retry=None, timeout=CALL_SECONDS, metadata=metadata
            )
        )
        return str(response.message_ids[0])

    # As an outlet.

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        return await self._outlet.publish_to(subscription, messages)

    async def exists(self, target: str) -> bool:
        return await self._outlet.exists(target)

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        return await self._outlet.fates(subscription, message_ids)

    async def release(self, subscription: str, message_id: str) -> Release:
        return await self._outlet.release(subscription, message_id)

    # Receiving.

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        request = _PullRequest(subscription=subscription, max_messages=max_messages)
        try:
            response = await self._called(self._pull, request, wait_seconds)
        except NoAnswerInTime:
            return []
        return _deliveries(subscription, response.received_messages)

    @asynccontextmanager
    async def stream(
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AsyncIterator[GoogleStream]:
        first = _StreamingPullRequest(
            subscription=subscription,
            stream_ack_deadline_seconds=deadline_seconds,
            client_id=self._client_id,
            max_outstanding_messages=max_messages,
            max_outstanding_bytes=max_bytes,
        )
        call = self._streaming_pull(metadata=_routing(subscription))
        try:
            await translated(_begun(call, first))
            yield GoogleStream(subscription, call)
        finally:
            call.cancel()

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        stale: list[str] = []
        for subscription, ack_ids in requests_for(deliveries):
            stale += await self._ack(subscription, ack_ids)
        if stale:
            raise errors.StaleAckIds(stale)

    async def _ack(self, subscription: str, ack_ids: Sequence[str]) -> list[str]:
        """Gives those that came too late. Those whose failure may pass are sent again, and no others with them: what
        was acked is stale when it is acked twice."""
        stale: list[str] = []
        for attempt in range(1, ACK_TRIES + 1):
            try:
                await self._called(self._acknowledge, _AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids))
            except AckIdsFailed as failed:
                stale += failed.for_good
                ack_ids = failed.for_now
            else:
                return stale
            if not ack_ids:
                return stale
            await asyncio.sleep(backoff_seconds(SHORTEST_ACK_PAUSE_SECONDS, LONGEST_ACK_PAUSE_SECONDS, attempt))
        raise errors.StorageUnavailable(f"the broker could not take {len(ack_ids)} acks")

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        told = failure_headers(reason, error) if reason or error else {}
        await self._modify(deliveries, whole_seconds(delay_seconds), told)

    async def reject(self, deliveries: Sequence[Delivery], reason: str, error: str) -> None:
        await self._modify(deliveries, 0, {push_headers.DEAD_LETTER: "now", **failure_headers(reason, error)})

    async def extend(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        await self._modify(deliveries, seconds)

    async def _modify(
        self, deliveries: Sequence[Delivery], seconds: int, told: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`told` goes as metadata, which only a broker of ours reads."""
        metadata = [(name.lower(), value) for name, value in told.items()]
        for subscription, ack_ids in requests_for(deliveries):
            request = _ModifyAckDeadlineRequest(
                subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
            )
            # They are over, which is what a nack wants and an extension cannot help; or they will be, by themselves.
            with suppress(AckIdsFailed):
                await self._called(self._modify_ack_deadline, request, metadata=metadata)

    async def _called(
        self, method: Any, request: Any, seconds: float | None = None, metadata: Sequence[tuple[str, str]] = ()
    ) -> Any:
        timeout = CALL_SECONDS if seconds is None else seconds
        metadata = (*_routing(request.subscription), *metadata)
        return await translated(method(request, timeout=timeout, metadata=metadata))

    async def check(self, name: str) -> None:
        try:
            if not await self._outlet.exists(name):
                raise errors.NotFound(f"the broker has no {name}")
        except errors.Misconfigured as error:
            if not isinstance(error.__cause__, exceptions.Forbidden):  # else it knows us, and does not let us ask
                raise

    async def close(self) -> None:
        await self._outlet.close()
        await self._publisher.transport.close()  # type: ignore[no-untyped-call]
        await self._subscriber.transport.close()  # type: ignore[no-untyped-call]


class GoogleStream:
    def __init__(self, subscription: str, call: Any) -> None:
        self.ordered = False
        self._subscription = subscription
        self._call = call

    async def receive(self) -> Sequence[Delivery]:
        while True:
            response = await translated(self._call.read())
            if response is grpc.aio.EOF:
                raise errors.StorageUnavailable("the broker ended the stream")
            if response.HasField("subscription_properties"):
                self.ordered = response.subscription_properties.message_ordering_enabled
            if response.received_messages:
                return _deliveries(self._subscription, response.received_messages)


async def _begun(call: Any, first: Any) -> None:
    """Once the request is on its way to a broker that is there."""
    try:
        await call.write(first)
    except asyncio.InvalidStateError:
        await call.read()  # raises what it ended with


async def _names(pages: Any) -> list[str]:
    """Of all pages; the client asks for one after the other."""
    return [resource.name async for resource in pages]


def _method(name: str) -> str:
    return f"/google.pubsub.v1.Subscriber/{name}"


def _unary(channel: Any, name: str, request: Any, response: Any) -> Any:
    return channel.unary_unary(_method(name), request.SerializeToString, response.FromString)


def _routing(subscription: str) -> tuple[tuple[str, str], ...]:
    """By this header Google's front ends find the region that serves the subscription."""
    return (("x-goog-request-params", f"subscription={subscription}"),)


def _deliveries(subscription: str, received: Sequence[Any]) -> list[Delivery]:
    return [Delivery(subscription, _message(one.message), one.delivery_attempt, one.ack_id) for one in received]


def _message(parsed: Any) -> Message:
    published = parsed.publish_time
    return Message(
        data=parsed.data,
        attributes=dict(parsed.attributes),
        ordering_key=parsed.ordering_key,
        message_id=parsed.message_id,
        publish_time_ns=published.seconds * NANOSECONDS + published.nanos,
    )


async def _created(call: Awaitable[Any]) -> bool:
    try:
        await translated(call)
    except errors.AlreadyExists:
        return False
    return True
