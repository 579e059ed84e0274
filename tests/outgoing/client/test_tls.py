"""Requests to https endpoints: who is trusted, and what a failed handshake comes to."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import SettingError
from holdfast.outgoing.addresses import LOOPBACK, AddressGuard
from holdfast.outgoing.client import OutgoingClient
from tests.outgoing.client.endpoint import OK, Visit, answering, endpoint, send
from tests.support.certificates import Authority, make_authority

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")

ANSWERED = ("answer", 200)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


@asynccontextmanager
async def trusting(ca_file: str) -> AsyncIterator[OutgoingClient]:
    client = OutgoingClient(AddressGuard(LOOPBACK), ca_file=ca_file, resolve=lambda name: ["127.0.0.1"])
    try:
        yield client
    finally:
        await client.close()


async def test_an_endpoint_that_is_trusted(authority: Authority) -> None:
    async with trusting(authority.file) as client, endpoint(answering(OK), tls=authority.server("there")) as there:
        for _ in range(3):
            assert await send(client, there.target("there"), most_body_bytes=100) == ANSWERED
        assert there.connections == 1
        assert await send(client, there.target("127.0.0.1")) == ANSWERED  # the certificate names it too
        assert there.connections == 2


async def test_the_host_name_is_sent(authority: Authority) -> None:
    context = authority.server("there")
    asked: list[str | None] = []
    context.sni_callback = lambda connection, name, context: asked.append(name)
    async with trusting(authority.file) as client, endpoint(answering(OK), tls=context) as there:
        assert await send(client, there.target("there")) == ANSWERED
    assert asked == ["there"]


async def test_a_large_request_and_a_large_answer(authority: Authority) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)
    async with trusting(authority.file) as client, endpoint(answering(said), tls=authority.server("there")) as there:
        body = bytes(range(256)) * (13 << 12)
        assert await send(client, there.target("there"), body=body, most_body_bytes=3_000_000) == ANSWERED
        assert there.requests[0].endswith(body)


@pytest.mark.parametrize(
    ("name", "days", "why"),
    [("elsewhere", 1, "not valid for 'there'"), ("there", -1, "expired"), ("", 1, "not valid for 'there'")],
)
async def test_a_certificate_that_is_wrong(authority: Authority, name: str, days: int, why: str) -> None:
    async with (
        trusting(authority.file) as client,
        endpoint(answering(OK), tls=authority.server(name, days=days)) as there,
    ):
        kind, reason = await send(client, there.target("there"))
        assert kind == "tls"
        assert why in str(reason)
        assert there.requests == []


async def test_an_authority_that_is_unknown(authority: Authority) -> None:
    async with trusting("") as client, endpoint(answering(OK), tls=authority.server("there")) as there:
        kind, reason = await send(client, there.target("there"))
        assert kind == "tls"
        assert "unable to get local issuer certificate" in str(reason)
        assert there.requests == []


async def test_tls_1_1_is_too_old(authority: Authority) -> None:
    context = authority.server("there")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with trusting(authority.file) as client, endpoint(answering(OK), tls=context) as there:
        assert (await send(client, there.target("there")))[0] == "tls"


async def test_an_endpoint_that_speaks_no_tls(authority: Authority) -> None:
    async def behave(visit: Visit) -> None:
        await visit.reader.read(1)
        await visit.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await visit.left()

    async with trusting(authority.file) as client, endpoint(behave) as there:
        there.scheme = "https"
        assert (await send(client, there.target("there")))[0] == "tls"


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_ends_in_the_handshake(authority: Authority, reset: bool) -> None:
    async def behave(visit: Visit) -> None:
        await visit.reader.read(1)
        if reset:
            visit.reset()

    async with trusting(authority.file) as client, endpoint(behave) as there:
        there.scheme = "https"
        assert (await send(client, there.target("there")))[0] == "tls"


async def test_a_handshake_that_hangs(authority: Authority) -> None:
    async with trusting(authority.file) as client, endpoint(Visit.left) as there:
        there.scheme = "https"
        kind, reason = await send(client, there.target("there"), seconds=0.2)
        assert (kind, reason) == ("timeout", f"no TLS handshake with 127.0.0.1 port {there.port}")
        await there.ended.get()  # we have closed the connection


async def test_a_cancelled_handshake_closes_its_connection(authority: Authority) -> None:
    arrived = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.reader.read(1)
        arrived.set()
        await visit.left()

    async with trusting(authority.file) as client, endpoint(behave) as there:
        there.scheme = "https"
        sending = asyncio.ensure_future(send(client, there.target("there")))
        await arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await there.ended.get()


async def test_an_endpoint_that_resets_between_two_requests(authority: Authority) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await visit.request()
        visit.reset()

    async with trusting(authority.file) as client, endpoint(behave, tls=authority.server("there")) as there:
        assert await send(client, there.target("there")) == ANSWERED
        assert await send(client, there.target("there")) == ANSWERED
        assert there.connections == 2


@pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
def test_authorities_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "broken.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError, match=r"broker\.push\.ca_file = .*broken\.pem.*cannot be read"):
        OutgoingClient(AddressGuard(), ca_file=str(file))
