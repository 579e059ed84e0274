"""Sends messages to one subscription alone, by whatever way the broker at the other end has for it.

Holdfast takes a subscription in the topic's place, and tells over HTTP on the same port what became of the messages.
Google's emulator and Cloud Pub/Sub know nothing like it: there the messages go through a topic of their own, which
feeds the same consumer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.types import pubsub

from holdfast.broker.wire import encode
from holdfast.errors import AlreadyExists, BadInput, NotFound, StorageUnavailable
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Message
from holdfast.model.names import is_subscription, replay_subscription, replay_topic
from holdfast.transports.calls import CALL, CALL_SECONDS, translated

# One request asks after so many. Its head stays far below what servers take.
IDS_PER_REQUEST = 500

# Of a subscription, what the one that feeds the same consumer has as well.
_COPIED = (
    "push_config",
    "ack_deadline_seconds",
    "retry_policy",
    "dead_letter_policy",
    "enable_message_ordering",
    "message_retention_duration",
    "labels",
)


class GoogleOutlet:
    """`address` is the broker's HOST:PORT, empty for Cloud Pub/Sub."""

    def __init__(self, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient, address: str) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._address = address
        self._takes_addresses = bool(address)  # as long as it has not refused one
        self._prepared: set[str] = set()  # subscriptions with a topic of their own
        self._http: aiohttp.ClientSession | None = None

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        if self._takes_addresses:
            try:
                return await self._publish(subscription, messages)
            except (BadInput, NotFound) as refusal:
                await self._get(subscription)  # raises when that is what was not found
                if _is_about_messages(refusal):
                    raise
            self._takes_addresses = False
        return await self._publish_through_topic(subscription, messages)

    async def _publish(self, topic: str, messages: Sequence[Message]) -> Sequence[str]:
        wrapped = [pubsub.PubsubMessage.deserialize(encode(message)) for message in messages]
        response = await translated(self._publisher.publish(topic=topic, messages=wrapped, **CALL))
        return list(response.message_ids)

    async def _publish_through_topic(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        if subscription in self._prepared:
            with suppress(NotFound):  # somebody has deleted it
                return await self._publish(replay_topic(subscription), messages)
        await self._prepare(subscription)
        self._prepared.add(subscription)
        return await self._publish(replay_topic(subscription), messages)

    async def _prepare(self, subscription: str) -> None:
        original = await self._get(subscription)
        topic = replay_topic(subscription)
        with suppress(AlreadyExists):
            await translated(self._publisher.create_topic(name=topic, **CALL))
        copy = pubsub.Subscription.pb()(name=replay_subscription(subscription), topic=topic)
        for field in _COPIED:
            _copy(field, pubsub.Subscription.pb(original), copy)
        with suppress(AlreadyExists):
            await translated(self._subscriber.create_subscription(request=pubsub.Subscription.wrap(copy), **CALL))

    async def _get(self, subscription: str) -> pubsub.Subscription:
        return await translated(self._subscriber.get_subscription(subscription=subscription, **CALL))

    async def exists(self, target: str) -> bool:
        try:
            if is_subscription(target):
                await self._get(target)
            else:
                await translated(self._publisher.get_topic(topic=target, **CALL))
        except NotFound:
            return False
        return True

    # What only Holdfast tells.

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        fates = dict.fromkeys(message_ids, Fate.UNKNOWN)
        for start in range(0, len(message_ids) if self._address else 0, IDS_PER_REQUEST):
            asked = [("messageId", message_id) for message_id in message_ids[start : start + IDS_PER_REQUEST]]
            found = await self._json("GET", "/api/v1/deliveries", params=[("subscription", subscription), *asked])
            if not found:
                await self._get(subscription)  # raises when that is why
            fates |= {one["messageId"]: Fate(one["fate"]) for one in found.get("deliveries", ())}
        return fates

    async def release(self, subscription: str, message_id: str) -> Release:
        """Others than Holdfast hold nothing."""
        if not self._address:
            return Release.NOT_HELD
        body = {"subscription": subscription, "messageId": message_id}
        told = await self._json("POST", "/api/v1/held/release", json=body)
        if told.get("released"):
            return Release.RELEASED
        return Release.NOT_YET if told.get("notYet") else Release.NOT_HELD

    async def _json(self, verb: str, path: str, **request: Any) -> Mapping[str, Any]:
        """Empty where the broker has no such thing."""
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS))
        try:
            async with self._http.request(verb, f"http://{self._address}{path}", **request) as answer:
                if answer.status >= 500:
                    raise StorageUnavailable(f"the broker answered {answer.status}")
                is_ours = answer.status == 200 and answer.content_type == "application/json"
                return dict(await answer.json()) if is_ours else {}
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise StorageUnavailable(f"the broker did not answer: {error}") from error

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


def _copy(field: str, original: Any, copy: Any) -> None:
    descriptor = original.DESCRIPTOR.fields_by_name[field]
    value = getattr(original, field)
    if descriptor.message_type is None:
        setattr(copy, field, value)
    elif descriptor.message_type.GetOptions().map_entry:
        getattr(copy, field).update(value)
    elif original.HasField(field):
        getattr(copy, field).CopyFrom(value)


def _is_about_messages(refusal: BadInput | NotFound) -> bool:
    """And not about the name: then it was taken for what it is. Our broker names the field first."""
    return isinstance(refusal, BadInput) and refusal.why.startswith("messages")
