"""google.pubsub.v1.Publisher. Each method is a plain async function from request to response message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1.types import pubsub

from holdfast.api.grpc.methods import Method
from holdfast.api.grpc.paging import page_of
from holdfast.broker.service import Broker
from holdfast.broker.wire import publish_response, split_publish_request
from holdfast.broker.wire_resources import PbTopic, changed_topic, topic_from_pb, topic_to_pb
from holdfast.errors import BadInput
from holdfast.model import push_headers
from holdfast.model.names import is_subscription
from holdfast.tracing.context import HEADER, checked
from holdfast.tracing.traces import Traces

SERVICE = "google.pubsub.v1.Publisher"

_ListTopicsResponse: Any = pubsub.ListTopicsResponse.pb()
_ListTopicSubscriptionsResponse: Any = pubsub.ListTopicSubscriptionsResponse.pb()
_ListTopicSnapshotsResponse: Any = pubsub.ListTopicSnapshotsResponse.pb()
_DetachSubscriptionResponse: Any = pubsub.DetachSubscriptionResponse.pb()


Publishing = Callable[[str, Sequence[bytes], int], Awaitable[list[bytes]]]


class Publisher:
    def __init__(self, broker: Broker, traces: Traces | None = None) -> None:
        self._broker = broker
        self._traces = traces

    def methods(self) -> dict[str, Method]:
        return {
            "CreateTopic": Method(PbTopic, self.create_topic),
            "GetTopic": Method(pubsub.GetTopicRequest.pb(), self.get_topic),
            "UpdateTopic": Method(pubsub.UpdateTopicRequest.pb(), self.update_topic),
            "ListTopics": Method(pubsub.ListTopicsRequest.pb(), self.list_topics),
            "ListTopicSubscriptions": Method(pubsub.ListTopicSubscriptionsRequest.pb(), self.list_subscriptions),
            "ListTopicSnapshots": Method(pubsub.ListTopicSnapshotsRequest.pb(), self.list_snapshots),
            "DetachSubscription": Method(pubsub.DetachSubscriptionRequest.pb(), self.detach_subscription),
            "DeleteTopic": Method(pubsub.DeleteTopicRequest.pb(), self.delete_topic),
            "Publish": Method(pubsub.PublishRequest.pb(), self.publish, raw=True, headers=True, traced=True),
        }

    async def create_topic(self, request: Any) -> Any:
        return topic_to_pb(await self._broker.create_topic(topic_from_pb(request)))

    async def get_topic(self, request: Any) -> Any:
        return topic_to_pb(self._broker.get_topic(request.topic))

    async def update_topic(self, request: Any) -> Any:
        changed = await self._broker.update_topic(
            request.topic.name, lambda topic: changed_topic(topic, request.topic, request.update_mask)
        )
        return topic_to_pb(changed)

    async def list_topics(self, request: Any) -> Any:
        topics = self._broker.list_topics(request.project)
        page, token = page_of(topics, lambda topic: topic.name, request)
        return _ListTopicsResponse(topics=[topic_to_pb(topic) for topic in page], next_page_token=token)

    async def list_subscriptions(self, request: Any) -> Any:
        names = self._broker.list_topic_subscriptions(request.topic)
        page, token = page_of(names, str, request)
        return _ListTopicSubscriptionsResponse(subscriptions=page, next_page_token=token)

    async def list_snapshots(self, request: Any) -> Any:
        names = self._broker.list_topic_snapshots(request.topic)
        page, token = page_of(names, str, request)
        return _ListTopicSnapshotsResponse(snapshots=page, next_page_token=token)

    async def detach_subscription(self, request: Any) -> Any:
        await self._broker.detach_subscription(request.subscription)
        return _DetachSubscriptionResponse()

    async def delete_topic(self, request: Any) -> Any:
        await self._broker.delete_topic(request.topic)
        return Empty()

    async def publish(self, request: bytes, headers: Mapping[str, str]) -> bytes:
        """A subscription in the topic's place is sent the messages alone: an addition of ours, which Cloud Pub/Sub
        refuses as a strict broker does."""
        name, messages = split_publish_request(request)
        publishing = self._publishing(name, headers)(name, messages, len(request))
        if self._traces is not None and (caller := checked(headers.get(HEADER, ""))):
            with self._traces.within(caller):
                return publish_response(await publishing)
        return publish_response(await publishing)

    def _publishing(self, name: str, headers: Mapping[str, str]) -> Publishing:
        strict = self._broker.is_strict
        if is_subscription(name):
            if strict:
                raise BadInput("topic", f"{name[:300]!r} is a subscription, and a topic is needed")
            return self._broker.publish_to
        if headers.get(push_headers.ONCE) == "true" and not strict:
            return self._broker.publish_once
        return self._broker.publish
