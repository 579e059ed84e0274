"""google.pubsub.v1.Subscriber. Each method is a plain async function over request and response messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, assert_never

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1.types import pubsub

from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.grpc.paging import page_of
from holdfast.broker import limits
from holdfast.broker.leases import NACKED, Lease
from holdfast.broker.service import Broker
from holdfast.broker.streams import Batch, Confirmation, Properties, PullStream, ToSend
from holdfast.broker.told import failure_told
from holdfast.broker.wire import received_message
from holdfast.broker.wire_resources import (
    PbSubscription,
    changed_snapshot,
    changed_subscription,
    nanoseconds,
    push_from_pb,
    snapshot_to_pb,
    subscription_from_pb,
    subscription_to_pb,
)
from holdfast.clock import NANOSECONDS
from holdfast.errors import BadInput, HoldfastError, StorageUnavailable
from holdfast.model.names import DELETED_TOPIC
from holdfast.model.resources import Subscription

SERVICE = "google.pubsub.v1.Subscriber"

_ListSubscriptionsResponse: Any = pubsub.ListSubscriptionsResponse.pb()
_ListSnapshotsResponse: Any = pubsub.ListSnapshotsResponse.pb()
_SeekResponse: Any = pubsub.SeekResponse.pb()
_StreamingPullResponse: Any = pubsub.StreamingPullResponse.pb()


class Subscriber:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._streams: set[PullStream] = set()

    def methods(self) -> dict[str, Method | StreamMethod]:
        return {
            "CreateSubscription": Method(PbSubscription, self.create_subscription),
            "GetSubscription": Method(pubsub.GetSubscriptionRequest.pb(), self.get_subscription),
            "UpdateSubscription": Method(pubsub.UpdateSubscriptionRequest.pb(), self.update_subscription),
            "ListSubscriptions": Method(pubsub.ListSubscriptionsRequest.pb(), self.list_subscriptions),
            "DeleteSubscription": Method(pubsub.DeleteSubscriptionRequest.pb(), self.delete_subscription),
            "ModifyPushConfig": Method(pubsub.ModifyPushConfigRequest.pb(), self.modify_push_config),
            "Pull": Method(pubsub.PullRequest.pb(), self.pull),
            "Acknowledge": Method(pubsub.AcknowledgeRequest.pb(), self.acknowledge),
            "ModifyAckDeadline": Method(pubsub.ModifyAckDeadlineRequest.pb(), self.modify_ack_deadline, headers=True),
            "CreateSnapshot": Method(pubsub.CreateSnapshotRequest.pb(), self.create_snapshot),
            "GetSnapshot": Method(pubsub.GetSnapshotRequest.pb(), self.get_snapshot),
            "ListSnapshots": Method(pubsub.ListSnapshotsRequest.pb(), self.list_snapshots),
            "UpdateSnapshot": Method(pubsub.UpdateSnapshotRequest.pb(), self.update_snapshot),
            "DeleteSnapshot": Method(pubsub.DeleteSnapshotRequest.pb(), self.delete_snapshot),
            "Seek": Method(pubsub.SeekRequest.pb(), self.seek),
            "StreamingPull": StreamMethod(pubsub.StreamingPullRequest.pb(), self.streaming_pull),
        }

    def end_streams(self) -> None:
        """Streams end with UNAVAILABLE, which tells clients to come back."""
        for stream in list(self._streams):
            stream.end(StorageUnavailable("the broker is stopping"))

    async def create_subscription(self, request: Any) -> Any:
        return self._to_pb(await self._broker.create_subscription(subscription_from_pb(request)))

    async def get_subscription(self, request: Any) -> Any:
        return self._to_pb(self._broker.get_subscription(request.subscription))

    async def update_subscription(self, request: Any) -> Any:
        changed = await self._broker.update_subscription(
            request.subscription.name,
            lambda config: changed_subscription(config, request.subscription, request.update_mask),
        )
        return self._to_pb(changed)

    def _to_pb(self, subscription: Subscription) -> Any:
        message = subscription_to_pb(subscription)
        if subscription.topic != DELETED_TOPIC:
            retention = self._broker.get_topic(subscription.topic).message_retention_seconds
            if retention is not None:
                message.topic_message_retention_duration.FromNanoseconds(round(retention * NANOSECONDS))
        return message

    async def list_subscriptions(self, request: Any) -> Any:
        found = self._broker.list_subscriptions(request.project)
        page, token = page_of(found, lambda subscription: subscription.name, request)
        return _ListSubscriptionsResponse(
            subscriptions=[self._to_pb(subscription) for subscription in page], next_page_token=token
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

    async def modify_ack_deadline(self, request: Any, headers: Mapping[str, str]) -> Any:
        """With headers of ours it is a nack that says why; one that is put off may say it too."""
        failure = failure_told(headers, NACKED) if headers else None
        seconds = request.ack_deadline_seconds
        self._broker.modify_ack_deadline(request.subscription, request.ack_ids, seconds, failure)
        return Empty()

    # Snapshots.

    async def create_snapshot(self, request: Any) -> Any:
        snapshot = await self._broker.create_snapshot(request.name, request.subscription, dict(request.labels))
        return snapshot_to_pb(snapshot)

    async def get_snapshot(self, request: Any) -> Any:
        return snapshot_to_pb(self._broker.get_snapshot(request.snapshot))

    async def list_snapshots(self, request: Any) -> Any:
        found = self._broker.list_snapshots(request.project)
        page, token = page_of(found, lambda snapshot: snapshot.name, request)
        return _ListSnapshotsResponse(snapshots=[snapshot_to_pb(snapshot) for snapshot in page], next_page_token=token)

    async def update_snapshot(self, request: Any) -> Any:
        changed = await self._broker.update_snapshot(
            request.snapshot.name, lambda snapshot: changed_snapshot(snapshot, request.snapshot, request.update_mask)
        )
        return snapshot_to_pb(changed)

    async def delete_snapshot(self, request: Any) -> Any:
        await self._broker.delete_snapshot(request.snapshot)
        return Empty()

    async def seek(self, request: Any) -> Any:
        match request.WhichOneof("target"):
            case "time":
                await self._broker.seek_to_time(request.subscription, nanoseconds("time", request.time))
            case "snapshot":
                await self._broker.seek_to_snapshot(request.subscription, request.snapshot)
            case _:
                self._broker.get_subscription(request.subscription)  # what is missing is told first
                raise BadInput("target", "a time or a snapshot is needed")
        return _SeekResponse()

    # Streaming.

    async def streaming_pull(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        first = await anext(requests, None)
        if first is None:
            return
        stream = self._open_stream(first)
        self._streams.add(stream)
        reader = asyncio.create_task(_read_requests(stream, requests))
        try:
            while (item := await stream.next()) is not None:
                yield self._response(first.subscription, item)
        finally:
            self._streams.discard(stream)
            stream.close()
            reader.cancel()

    def _response(self, subscription: str, item: ToSend) -> Any:
        match item:
            case Batch(leases):
                return _received(leases, self._broker.get_subscription(subscription))
            case Properties(exactly_once, ordered):
                return _StreamingPullResponse(
                    subscription_properties={
                        "exactly_once_delivery_enabled": exactly_once,
                        "message_ordering_enabled": ordered,
                    }
                )
            case Confirmation():
                field = "acknowledge_confirmation" if item.of_acks else "modify_ack_deadline_confirmation"
                outcome = {
                    "ack_ids": item.good,
                    "invalid_ack_ids": item.stale,
                    "temporary_failed_ack_ids": item.unavailable,
                }
                return _StreamingPullResponse(**{field: outcome})
            case _:
                assert_never(item)

    def _open_stream(self, first: Any) -> PullStream:
        _check_deadline(first.stream_ack_deadline_seconds)
        queue = self._broker.queue(first.subscription)
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
        stream.ack(list(request.ack_ids))
    for seconds in request.modify_deadline_seconds:
        if not 0 <= seconds <= limits.ACK_DEADLINE_SECONDS[1]:
            raise BadInput("modify_deadline_seconds", f"{seconds} is out of range; 0 to 600 is allowed")
    if request.modify_deadline_ack_ids:
        changes = zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True)
        stream.modify_deadlines(list(changes))
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


def _received(leases: Sequence[Lease], config: Subscription) -> bytes:
    """A PullResponse or StreamingPullResponse. The attempt is told only where there is a dead-letter policy."""
    counted = config.dead_letter is not None
    return b"".join([received_message(lease.ack_id, lease.body, lease.attempt if counted else 0) for lease in leases])
