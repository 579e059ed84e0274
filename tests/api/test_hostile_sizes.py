"""Requests that are small on the wire and large, or endless work, when taken apart: refused before the work."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request

import grpc
import pytest
from google.pubsub_v1.types import pubsub

from holdfast.broker import wire
from holdfast.errors import BadInput
from tests.support.served_broker import SUBSCRIPTION, TOPIC, Clients, Server


def test_many_empty_gzip_members_are_refused_by_their_number(server: Server) -> None:
    request = urllib.request.Request(
        f"http://{server.address}/v1/{TOPIC}:publish",
        data=gzip.compress(b"") * 1000,
        headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    with caught.value as answer:
        assert answer.code == 400
        assert b"gzip members" in answer.read()


def test_millions_of_empty_messages_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(BadInput, match="more than 1000 messages"):
        wire.split_publish_request(b"\x12\x00" * 1_000_000)


def test_a_time_that_is_none_is_a_bad_request(clients: Clients) -> None:
    clients.make()
    request = pubsub.SeekRequest.pb()(subscription=SUBSCRIPTION)
    request.time.seconds = 1 << 60
    with pytest.raises(grpc.RpcError) as caught:  # below the client's own layer, which would refuse to make it
        clients.subscriber.transport.seek(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "time: is not a valid timestamp"
