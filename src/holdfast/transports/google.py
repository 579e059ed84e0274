"""Any Pub/Sub over gRPC: Cloud Pub/Sub, Google's emulator, or another Holdfast."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Self, TypeVar

import grpc
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import pubsub

from holdfast import errors
from holdfast.broker.wire import decode, encode
from holdfast.broker.wire_resources import subscription_to_pb
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription
from holdfast.transports.ack_ids import ack_ids_by_subscription

T = TypeVar("T")

# The clients' own retries go on for minutes; here a call fails in reasonable time and its caller decides.
CALL_SECONDS = 20.0


class GoogleTransport:
    def __init__(self, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient) -> None:
        self._publisher = publisher
        self._subscriber = subscriber

    @classmethod
    def connect(cls, emulator_host: str) -> Self:
        """An empty host means Cloud Pub/Sub, with the machine's own credentials."""
        if not emulator_host:
            return cls._connect_to_cloud()
        options = [("grpc.max_receive_message_length", -1)]
        return cls(
            PublisherAsyncClient(
                transport=PublisherGrpcAsyncIOTransport(
                    channel=grpc.aio.insecure_channel(emulator_host, options=options)
                )
            ),
            SubscriberAsyncClient(
                transport=SubscriberGrpcAsyncIOTransport(
                    channel=grpc.aio.insecure_channel(emulator_host, options=options)
                )
            ),
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

    async def publish(self, topic: str, message: Message) -> str:
        wrapped = pubsub.PubsubMessage.deserialize(encode(message))
        response = await _translated(
            self._publisher.publish(topic=topic, messages=[wrapped], retry=None, timeout=CALL_SECONDS)
        )
        return str(response.message_ids[0])

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        call = self._subscriber.pull(
            subscription=subscription, max_messages=max_messages, retry=None, timeout=wait_seconds
        )
        try:
            response = await _translated(call)
        except _NoAnswerInTime:
            return []
        received = pubsub.PullResponse.pb(response).received_messages
        return [
            Delivery(subscription, decode(one.message.SerializeToString()), one.delivery_attempt, one.ack_id)
            for one in received
        ]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            await _translated(
                self._subscriber.acknowledge(
                    subscription=subscription, ack_ids=ack_ids, retry=None, timeout=CALL_SECONDS
                )
            )

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            await _translated(
                self._subscriber.modify_ack_deadline(
                    subscription=subscription,
                    ack_ids=ack_ids,
                    ack_deadline_seconds=0,
                    retry=None,
                    timeout=CALL_SECONDS,
                )
            )

    async def close(self) -> None:
        await self._publisher.transport.close()  # type: ignore[no-untyped-call]
        await self._subscriber.transport.close()  # type: ignore[no-untyped-call]


class _NoAnswerInTime(errors.StorageUnavailable):
    pass


async def _created(call: Awaitable[Any]) -> bool:
    try:
        await _translated(call)
    except errors.AlreadyExists:
        return False
    return True


async def _translated(call: Awaitable[T]) -> T:
    """google.api_core's errors become ours; whatever may pass by itself is StorageUnavailable."""
    try:
        return await call
    except exceptions.DeadlineExceeded as error:
        raise _NoAnswerInTime("the broker did not answer in time") from error
    except exceptions.NotFound as error:
        raise errors.NotFound(error.message) from error
    except exceptions.AlreadyExists as error:
        raise errors.AlreadyExists(error.message) from error
    except exceptions.FailedPrecondition as error:
        raise errors.FailedPrecondition(error.message) from error
    except exceptions.InvalidArgument as error:
        raise errors.BadInput("request", error.message) from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise errors.Misconfigured(error.message) from error
    except exceptions.GoogleAPICallError as error:
        raise errors.StorageUnavailable(f"the broker did not answer: {error.message}") from error
