"""A broker on a port, in a thread of its own, and the official clients to talk to it."""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import uvloop
from google.pubsub_v1 import PublisherClient as RawPublisher
from google.pubsub_v1 import SubscriberClient as RawSubscriber
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import PubsubMessage, StreamingPullRequest

from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.settings import BrokerSettings
from holdfast.stores.sqlite.log import SqliteMessageLog

PROJECT = "projects/proj"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/worker"

SECONDS = 10.0  # longest wait for any one call


class Server:
    """A broker over SQLite in an event loop on a thread of its own, uvloop as in production."""

    def __init__(self, path: Path) -> None:
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._ports: queue.Queue[int] = queue.Queue()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(path)))
        self._thread.start()
        self.address = f"127.0.0.1:{self._ports.get(timeout=SECONDS)}"

    async def _serve(self, path: Path) -> None:
        log = await SqliteMessageLog.open(path)
        broker = await Broker.open(log, SystemClock(), BrokerSettings())
        server = PubsubServer(broker)
        self._ports.put(await server.start("127.0.0.1", 0))
        await self._stop.wait()
        await server.stop()
        await broker.close()
        await log.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(SECONDS)
            self._loop.close()


@dataclass
class Clients:
    publisher: RawPublisher
    subscriber: RawSubscriber
    address: str

    def make(self, **subscription: Any) -> None:
        self.publisher.create_topic(name=TOPIC, timeout=SECONDS)
        self.subscriber.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, **subscription}, timeout=SECONDS
        )

    def publish(self, *data: bytes, **message: Any) -> list[str]:
        messages = [PubsubMessage({"data": item, **message}) for item in data]
        return list(self.publisher.publish(topic=TOPIC, messages=messages, timeout=SECONDS).message_ids)

    def pull(self, most: int = 100, subscription: str = SUBSCRIPTION) -> list[Any]:
        response = self.subscriber.pull(subscription=subscription, max_messages=most, timeout=SECONDS)
        return list(response.received_messages)


def connect(address: str) -> Clients:
    options = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(address, options)
    return Clients(
        RawPublisher(transport=PublisherGrpcTransport(channel=channel)),
        RawSubscriber(transport=SubscriberGrpcTransport(channel=channel)),
        address,
    )


class Stream:
    """One raw streaming pull."""

    def __init__(self, clients: Clients, **first: Any) -> None:
        self._requests: queue.Queue[StreamingPullRequest | None] = queue.Queue()
        self.send(subscription=SUBSCRIPTION, **{"stream_ack_deadline_seconds": 10, **first})
        self._responses: Any = clients.subscriber.streaming_pull(
            requests=iter(self._requests.get, None), timeout=SECONDS
        )

    def send(self, **request: Any) -> None:
        self._requests.put(StreamingPullRequest(**request))

    def half_close(self) -> None:
        self._requests.put(None)

    def receive(self) -> Any:
        return next(self._responses)

    def messages(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.receive().received_messages
        return found
