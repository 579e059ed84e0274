"""Google's own Pub/Sub clients against a broker on this machine. Every call has a time limit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from unittest import mock

from google.cloud import pubsub_v1
from google.pubsub_v1.types import ReceivedMessage, Subscription

from tests.support.waiting import eventually

CALL_SECONDS = 15.0


class Pubsub:
    """Names are short ids in one project."""

    def __init__(self, broker: str, project: str = "local") -> None:
        self.project = project
        # The clients read the variable once, when they are made.
        with mock.patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": broker}):
            self.publisher = pubsub_v1.PublisherClient()
            self.subscriber = pubsub_v1.SubscriberClient()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.publisher.stop()
        self.publisher.transport.close()  # type: ignore[no-untyped-call]
        self.subscriber.close()

    def topic(self, topic: str) -> str:
        return f"projects/{self.project}/topics/{topic}"

    def subscription(self, subscription: str) -> str:
        return f"projects/{self.project}/subscriptions/{subscription}"

    def create_topic(self, topic: str) -> None:
        self.publisher.create_topic(name=self.topic(topic), timeout=CALL_SECONDS)

    def subscribe(self, subscription: str, topic: str, **config: Any) -> None:
        request = {"name": self.subscription(subscription), "topic": self.topic(topic), **config}
        self.subscriber.create_subscription(request=request, timeout=CALL_SECONDS)

    def modify_push(self, subscription: str, push_config: dict[str, Any]) -> None:
        request = {"subscription": self.subscription(subscription), "push_config": push_config}
        self.subscriber.modify_push_config(request=request, timeout=CALL_SECONDS)

    def describe(self, subscription: str) -> Subscription:
        path = self.subscription(subscription)
        return self.subscriber.get_subscription(subscription=path, timeout=CALL_SECONDS)

    def topics(self) -> set[str]:
        found = self.publisher.list_topics(project=f"projects/{self.project}", timeout=CALL_SECONDS)
        return {topic.name.rsplit("/", 1)[-1] for topic in found}

    def subscriptions(self) -> set[str]:
        found = self.subscriber.list_subscriptions(project=f"projects/{self.project}", timeout=CALL_SECONDS)
        return {subscription.name.rsplit("/", 1)[-1] for subscription in found}

    def publish(self, topic: str, *messages: bytes | Mapping[str, Any], **attributes: str) -> list[str]:
        """Gives the message ids, once the broker has given all of them."""
        sent = [
            self.publisher.publish(self.topic(topic), as_data(message), "", timeout=CALL_SECONDS, **attributes)  # type: ignore[arg-type]
            for message in messages
        ]
        return [str(future.result(timeout=CALL_SECONDS)) for future in sent]

    def publish_one(self, topic: str, message: bytes | Mapping[str, Any], **attributes: str) -> str:
        return self.publish(topic, message, **attributes)[0]

    def pull(self, subscription: str, max_messages: int = 100) -> Sequence[ReceivedMessage]:
        """What is there now, or comes within the broker's short wait; acked."""
        path = self.subscription(subscription)
        response = self.subscriber.pull(subscription=path, max_messages=max_messages, timeout=CALL_SECONDS)
        received = list(response.received_messages)
        if received:
            ack_ids = [one.ack_id for one in received]
            self.subscriber.acknowledge(subscription=path, ack_ids=ack_ids, timeout=CALL_SECONDS)
        return received

    def pull_one(self, subscription: str) -> ReceivedMessage:
        return eventually(lambda: self.pull(subscription, max_messages=1))[0]


def as_data(message: bytes | Mapping[str, Any]) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()
