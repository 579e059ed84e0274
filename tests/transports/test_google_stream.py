"""What only a network can do to streams and acks: a small gRPC server answers as Cloud Pub/Sub may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1.types import pubsub
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status  # type: ignore[import-untyped]

from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, Misconfigured, NotFound, StaleAckIds, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.transports import google
from holdfast.transports.google import GoogleTransport

SUBSCRIPTION = "projects/local/subscriptions/orders"

PATIENCE_SECONDS = 10.0

_StreamingPullResponse: Any = pubsub.StreamingPullResponse.pb()
_pb: Any = error_details_pb2


class Cloud:
    """Answers calls with `answers`, one after the other: None is success. Notes the requests."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.stream_ends_with: grpc.StatusCode | None = None

    async def call(self, request: Any, context: Any) -> Any:
        self._note(request, context)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            await context.abort_with_status(rpc_status.to_status(answer))
        return Empty()

    async def streaming_pull(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        self._note(await anext(requests), context)
        yield _StreamingPullResponse(received_messages=[{"ack_id": "1", "message": {"data": b"x"}}])
        if self.stream_ends_with is not None:
            await context.abort(self.stream_ends_with, "as told")

    def _note(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))


@asynccontextmanager
async def running(cloud: Cloud) -> AsyncIterator[GoogleTransport]:
    server = grpc.aio.server()
    unary: dict[str, Any] = {
        "Acknowledge": pubsub.AcknowledgeRequest,
        "ModifyAckDeadline": pubsub.ModifyAckDeadlineRequest,
    }
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(cloud.call, kind.pb().FromString, Empty.SerializeToString)
        for name, kind in unary.items()
    }
    handlers["StreamingPull"] = grpc.stream_stream_rpc_method_handler(
        cloud.streaming_pull, pubsub.StreamingPullRequest.pb().FromString, _StreamingPullResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    transport = GoogleTransport.connect(f"127.0.0.1:{port}")
    try:
        yield transport
    finally:
        await transport.close()
        await server.stop(None)


def deliveries(*ack_ids: str) -> list[Delivery]:
    return [Delivery(SUBSCRIPTION, Message(b"x"), ack_id=ack_id) for ack_id in ack_ids]


def ack_ids_failed(**why: str) -> Any:
    status = status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message="some ack ids failed")
    status.details.add().Pack(
        _pb.ErrorInfo(reason="EXACTLY_ONCE_ACKID_FAILURE", domain="pubsub.googleapis.com", metadata=why)
    )
    return status


TRANSIENT = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"


# Acks under exactly-once delivery.


async def test_acks_that_may_still_succeed_are_sent_again_and_no_others() -> None:
    cloud = Cloud()
    cloud.answers = [ack_ids_failed(b=TRANSIENT, c=PERMANENT), ack_ids_failed(b=TRANSIENT)]
    async with running(cloud) as transport:
        with pytest.raises(StaleAckIds) as refused:
            await transport.ack(deliveries("a", "b", "c"))
    assert refused.value.ack_ids == ["c"]
    assert [list(request.ack_ids) for request in cloud.requests] == [["a", "b", "c"], ["b"], ["b"]]


async def test_acks_that_never_succeed_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "LONGEST_ACK_PAUSE_SECONDS", 0.0)
    cloud = Cloud()
    cloud.answers = [ack_ids_failed(a=TRANSIENT)] * 100
    async with running(cloud) as transport:
        with pytest.raises(StorageUnavailable):
            await transport.ack(deliveries("a"))
    assert len(cloud.requests) == google.ACK_TRIES


async def test_a_nack_or_extension_that_came_too_late_is_no_trouble() -> None:
    cloud = Cloud()
    cloud.answers = [ack_ids_failed(a=PERMANENT), ack_ids_failed(a=TRANSIENT, b=PERMANENT)]
    async with running(cloud) as transport:
        await transport.nack(deliveries("a"), 2.2)
        await transport.extend(deliveries("a", "b"), 30)
    assert [request.ack_deadline_seconds for request in cloud.requests] == [3, 30]


# Requests.


async def test_many_ack_ids_go_in_requests_that_pubsub_takes() -> None:
    cloud = Cloud()
    many = deliveries(*(f"{number:0200}" for number in range(2500)))
    async with running(cloud) as transport:
        await transport.ack(many)
        await transport.extend(many, 30)
    assert [len(request.ack_ids) for request in cloud.requests] == [1000, 1000, 500] * 2
    assert max(request.ByteSize() for request in cloud.requests) < 512 * 1024


@pytest.mark.parametrize(("delay", "seconds"), [(0.0, 0), (0.01, 1), (59.5, 60), (10_000.0, 600), (-1.0, 0)])
async def test_a_delay_becomes_whole_seconds_that_pubsub_takes(delay: float, seconds: int) -> None:
    cloud = Cloud()
    async with running(cloud) as transport:
        await transport.nack(deliveries("a"), delay)
    assert [request.ack_deadline_seconds for request in cloud.requests] == [seconds]


async def test_a_stream_says_what_it_wants() -> None:
    cloud = Cloud()
    async with running(cloud) as transport:
        for _ in range(2):
            async with transport.stream(SUBSCRIPTION, 7, 8000, 30) as stream:
                assert [delivery.ack_id for delivery in await stream.receive()] == ["1"]
        await transport.ack(deliveries("1"))
    first, second, _ = cloud.requests
    assert (first.subscription, first.stream_ack_deadline_seconds) == (SUBSCRIPTION, 30)
    assert (first.max_outstanding_messages, first.max_outstanding_bytes) == (7, 8000)
    assert first.client_id
    assert first.client_id == second.client_id
    assert {metadata["x-goog-request-params"] for metadata in cloud.metadata} == {f"subscription={SUBSCRIPTION}"}


# How streams end.


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (None, StorageUnavailable),
        (grpc.StatusCode.UNAVAILABLE, StorageUnavailable),
        (grpc.StatusCode.CANCELLED, StorageUnavailable),
        (grpc.StatusCode.INTERNAL, StorageUnavailable),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.PERMISSION_DENIED, Misconfigured),
        (grpc.StatusCode.UNAUTHENTICATED, Misconfigured),
    ],
)
async def test_the_end_of_a_stream_is_an_error_that_says_which(
    status: grpc.StatusCode | None, error: type[HoldfastError]
) -> None:
    cloud = Cloud()
    cloud.stream_ends_with = status
    async with running(cloud) as transport, transport.stream(SUBSCRIPTION, 10, 1000, 10) as stream:
        await stream.receive()
        with pytest.raises(error):
            await asyncio.wait_for(stream.receive(), PATIENCE_SECONDS)


async def test_a_stream_to_nobody_is_unavailable(refused_port: int) -> None:
    transport = GoogleTransport.connect(f"127.0.0.1:{refused_port}")
    started = time.monotonic()
    with pytest.raises(StorageUnavailable):
        async with transport.stream(SUBSCRIPTION, 10, 1000, 10):
            pass
    assert time.monotonic() - started < 5
    await transport.close()


async def test_a_receive_that_is_cancelled_by_its_caller_is_just_that() -> None:
    async with running_broker() as (_, transport), transport.stream(SUBSCRIPTION, 10, 1000, 10) as stream:
        receiving = asyncio.create_task(stream.receive())
        await asyncio.wait([receiving], timeout=0.1)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving


async def test_a_stream_ends_when_its_broker_stops() -> None:
    async with running_broker() as (server, transport), transport.stream(SUBSCRIPTION, 10, 1000, 10) as stream:
        receiving = asyncio.create_task(stream.receive())
        await asyncio.wait([receiving], timeout=0.1)
        assert not receiving.done()
        await server.stop()
        with pytest.raises(StorageUnavailable):
            await asyncio.wait_for(receiving, PATIENCE_SECONDS)


@asynccontextmanager
async def running_broker() -> AsyncIterator[tuple[PubsubServer, GoogleTransport]]:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    await broker.create_topic(Topic("projects/local/topics/orders"))
    await broker.create_subscription(Subscription(SUBSCRIPTION, "projects/local/topics/orders"))
    server = PubsubServer(broker)
    port = await server.start("127.0.0.1", 0)
    transport = GoogleTransport.connect(f"127.0.0.1:{port}")
    try:
        yield server, transport
    finally:
        await transport.close()
        await server.stop()
        await broker.close()
