"""google.pubsub.v1.Subscriber. Each method is a plain async function over request and response messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1.types import pubsub

from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.grpc.paging import page_of
from holdfast.broker import limits
from holdfast.broker.leases import Lease
from holdfast.broker.service import Broker
from holdfast.broker.streams import PullStream
from holdfast.broker.wire import received_message
from holdfast.broker.wire_resources import (
    PbSubscription,
    push_from_pb,
    subscription_from_pb,
    subscription_to_pb,
)
from holdfast.errors import BadInput, HoldfastError, StorageUnavailable
from holdfast.model.resources import Subscription

SERVICE = "google.pubsub.v1.Subscriber"

_ListSubscriptionsResponse: Any = pubsub.ListSubscriptionsResponse.pb()
_StreamingPullResponse: Any = pubsub.StreamingPullResponse.pb()


class Subscriber:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._streams: set[PullStream] = set()

    def methods(self) -> dict[str, Method | StreamMethod]:
        return {
            "CreateSubscription": Method(PbSubscription, self.create_subscription),
            "GetSubscription": Method(pubsub.GetSubscriptionRequest.pb(), self.get_subscription),
            "ListSubscriptions": Method(pubsub.ListSubscriptionsRequest.pb(), self.list_subscriptions),
            "DeleteSubscription": Method(pubsub.DeleteSubscriptionRequest.pb(), self.delete_subscription),
            "ModifyPushConfig": Method(pubsub.ModifyPushConfigRequest.pb(), self.modify_push_config),
            "Pull": Method(pubsub.PullRequest.pb(), self.pull),
            "Acknowledge": Method(pubsub.AcknowledgeRequest.pb(), self.acknowledge),
            "ModifyAckDeadline": Method(pubsub.ModifyAckDeadlineRequest.pb(), self.modify_ack_deadline),
            "StreamingPull": StreamMethod(pubsub.StreamingPullRequest.pb(), self.streaming_pull),
        }

    def end_streams(self) -> None:
        """Streams end with UNAVAILABLE, which tells clients to come back."""
        for stream in list(self._streams):
            stream.end(StorageUnavailable("the broker is stopping"))

    async def create_subscription(self, request: Any) -> Any:
        return subscription_to_pb(await self._broker.create_subscription(subscription_from_pb(request)))

    async def get_subscription(self, request: Any) -> Any:
        return subscription_to_pb(self._broker.get_subscription(request.subscription))

    async def list_subscriptions(self, request: Any) -> Any:
        found = self._broker.list_subscriptions(request.project)
        page, token = page_of(found, lambda subscription: subscription.name, request)
        return _ListSubscriptionsResponse(
            subscriptions=[subscription_to_pb(subscription) for subscription in page], next_page_token=token
        )

    async def delete_subscription(self, request: Any) -> Any:
        await self._broker.delete_subscription(request.subscription)
        return Empty()

    async def modify_push_config(self, request: Any) -> Any:
        await self._broker.modify_push_config(request.subscription, push_from_pb(request.push_config))
        return Empty()

    async def pull(self, request: Any) -> bytes:
        config = self._broker.get_subscription(request.subscription)
        wait = {"wait_seconds": 0.0} if request.return_immediately else {}
        leases = await self._broker.pull(request.subscription, request.max_messages, **wait)
        return _received(leases, config)

    async def acknowledge(self, request: Any) -> Any:
        await self._broker.acknowledge(request.subscription, request.ack_ids)
        return Empty()

    async def modify_ack_deadline(self, request: Any) -> Any:
        self._broker.modify_ack_deadline(request.subscription, request.ack_ids, request.ack_deadline_seconds)
        return Empty()

    async def streaming_pull(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        first = await anext(requests, None)
        if first is None:
            return
        stream = self._open_stream(first)
        self._streams.add(stream)
        reader = asyncio.create_task(_read_requests(stream, requests))
        try:
            yield _StreamingPullResponse(subscription_properties={})
            while (leases := await stream.next_batch()) is not None:
                yield _received(leases, self._broker.get_subscription(first.subscription))
        finally:
            self._streams.discard(stream)
            stream.close()
            reader.cancel()

    def _open_stream(self, first: Any) -> PullStream:
        queue = self._broker.queue(first.subscription)
        _check_deadline(first.stream_ack_deadline_seconds)
        stream = PullStream(
            queue,
            first.stream_ack_deadline_seconds,
            first.max_outstanding_messages,
            first.max_outstanding_bytes,
        )
        _take_in(stream, first)
        return stream


async def _read_requests(stream: PullStream, requests: AsyncIterator[Any]) -> None:
    """Half-close by the client ends the stream; so does a request that makes no sense."""
    try:
        async for request in requests:
            _check_later_request(request)
            if not _take_in(stream, request):
                stream.ping()
    except HoldfastError as error:
        stream.end(error)
    else:
        stream.end()


def _take_in(stream: PullStream, request: Any) -> bool:
    """False when there was nothing in it: a ping."""
    if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
        raise BadInput("modify_deadline_seconds", "must have as many values as modify_deadline_ack_ids")
    if request.ack_ids:
        stream.ack(request.ack_ids)
    for ack_id, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True):
        if not 0 <= seconds <= limits.ACK_DEADLINE_SECONDS[1]:
            raise BadInput("modify_deadline_seconds", f"{seconds} is out of range; 0 to 600 is allowed")
        stream.modify_deadline(ack_id, seconds)
    if request.stream_ack_deadline_seconds:
        _check_deadline(request.stream_ack_deadline_seconds)
        stream.set_deadline(request.stream_ack_deadline_seconds)
    return bool(request.ack_ids or request.modify_deadline_ack_ids or request.stream_ack_deadline_seconds)


def _check_later_request(request: Any) -> None:
    for field in ("subscription", "client_id", "max_outstanding_messages", "max_outstanding_bytes"):
        if getattr(request, field):
            raise BadInput(field, "may be set in the first request of a stream only")


def _check_deadline(seconds: int) -> None:
    low, high = limits.ACK_DEADLINE_SECONDS
    if not low <= seconds <= high:
        raise BadInput("stream_ack_deadline_seconds", f"{seconds} is out of range; {low} to {high} is allowed")


def _received(leases: list[Lease] | Any, config: Subscription) -> bytes:
    """A PullResponse or StreamingPullResponse. The attempt is told only where there is a dead-letter policy."""
    counted = config.dead_letter is not None
    return b"".join([received_message(lease.ack_id, lease.body, lease.attempt if counted else 0) for lease in leases])
