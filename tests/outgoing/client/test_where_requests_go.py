"""From a name to a connection: what is looked up, what is blocked, and that nothing else is ever connected to."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest

from holdfast.outgoing import client as clients
from holdfast.outgoing import resolver as resolvers
from holdfast.outgoing.addresses import LOOPBACK, AddressGuard, Network
from holdfast.outgoing.client import OutgoingClient, Resolve
from holdfast.outgoing.targets import parse_target
from tests.outgoing.client.endpoint import OK, answering, endpoint, post, send

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")

ANSWERED = ("answer", 200)
ANSWERS_AND_CLOSES = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def a_client(
    resolve: Resolve = resolvers.system_resolve, *, allow: Sequence[Network] = LOOPBACK
) -> AsyncIterator[OutgoingClient]:
    client = OutgoingClient(AddressGuard(allow), resolve=resolve)
    try:
        yield client
    finally:
        await client.close()


class Names:
    """A DNS server: each name's answers, one a lookup, the last again and again."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answers = self._answers[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answer


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that a connection was tried to. Those that are not on this machine refuse it."""
    addresses: list[str] = []
    real = clients._connected_socket

    async def noted(address: str, port: int) -> socket.socket:
        addresses.append(address)
        if not address.startswith("127."):
            raise ConnectionRefusedError(111, "Connection refused")
        return await real(address, port)

    monkeypatch.setattr(clients, "_connected_socket", noted)
    return addresses


@contextmanager
def swallowing_port() -> Iterator[int]:
    """A port on which connections are neither accepted nor refused: nobody takes from its full queue."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = []
        try:
            for _ in range(10):
                plain = socket.socket()
                waiting.append(plain)
                plain.settimeout(0.1)
                try:
                    plain.connect(("127.0.0.1", port))
                except TimeoutError:
                    break
            else:
                pytest.skip("this system's queues are never full")
            yield port
        finally:
            for plain in waiting:
                plain.close()


# Names.


async def test_a_name_is_resolved(connected: list[str]) -> None:
    names = Names(there=[["127.0.0.1"]])
    async with a_client(names) as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target("there")) == ANSWERED
        assert b"Host: there:%d\r\n" % there.port in there.requests[0]
    assert names.asked == ["there"]
    assert connected == ["127.0.0.1"]


async def test_an_address_needs_no_lookup() -> None:
    names = Names()
    async with a_client(names) as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target("127.0.0.1")) == ANSWERED
    assert names.asked == []


async def test_the_systems_resolver() -> None:
    async with a_client() as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target("localhost")) == ANSWERED


async def test_a_name_that_is_not_known() -> None:
    names = Names(there=[[]])
    async with a_client(names) as client:
        target = parse_target("url", "http://there/")
        reason = "cannot resolve there: Name or service not known"
        assert await send(client, target) == ("dns", reason)
        assert await send(client, target) == ("dns", reason)
    assert names.asked == ["there"]  # it is remembered for a moment


async def test_a_name_without_addresses() -> None:
    async with a_client(lambda name: []) as client:
        assert await send(client, parse_target("url", "http://there/")) == ("dns", "there has no address")


async def test_an_answer_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(there=[["127.0.0.1"]])
    async with a_client(names) as client, endpoint(answering(ANSWERS_AND_CLOSES)) as there:
        for _ in range(3):
            assert await send(client, there.target("there")) == ANSWERED
        assert there.connections == 3
        assert names.asked == ["there"]
    monkeypatch.setattr(resolvers, "CACHE_SECONDS", 0.0)
    async with a_client(names) as client, endpoint(answering(ANSWERS_AND_CLOSES)) as there:
        for _ in range(3):
            assert await send(client, there.target("there")) == ANSWERED
    assert names.asked == ["there"] * 4


async def test_no_more_than_so_many_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolvers, "MOST_CACHED", 2)
    async with a_client(lambda name: ["10.0.0.1"]) as client:
        for name in ("a", "b", "c", "b", "d"):
            assert (await send(client, parse_target("url", f"http://{name}/")))[0] == "blocked"
        assert list(client._resolver._cache) == ["c", "d"]


class Hanging:
    """A DNS server that answers for `slow` only when told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()

    def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        if name == "slow":
            self.go.wait(30)
        return ["127.0.0.1"]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.go.set()


async def test_a_hanging_lookup_holds_nobody_else(hanging: Hanging) -> None:
    async with a_client(hanging) as client, endpoint(answering(OK)) as there:
        first = asyncio.ensure_future(send(client, there.target("slow"), seconds=0.1))
        slow = [asyncio.ensure_future(send(client, there.target("slow"))) for _ in range(100)]
        assert await send(client, there.target("quick")) == ANSWERED
        assert await first == ("timeout", "cannot resolve slow: no answer from DNS")
        kind, error = await send(client, there.target("slow"), seconds=0.1)  # behind those that are being connected
        assert (kind, error) == ("unsent", f"no connection to slow:{there.port} within 0.1 s")
        hanging.go.set()
        assert await asyncio.gather(*slow) == [ANSWERED] * 100
    assert sorted(hanging.asked) == ["quick", "slow"]  # one lookup for all of them


async def test_who_gives_up_on_a_lookup_does_not_end_it_for_others(hanging: Hanging) -> None:
    async with a_client(hanging) as client, endpoint(answering(OK)) as there:
        first = asyncio.ensure_future(send(client, there.target("slow")))
        second = asyncio.ensure_future(send(client, there.target("slow")))
        assert await send(client, there.target("quick")) == ANSWERED
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        hanging.go.set()
        assert await second == ANSWERED
    assert hanging.asked.count("slow") == 1


async def test_closing_does_not_wait_for_a_lookup(hanging: Hanging) -> None:
    async with a_client(hanging) as client:
        sending = asyncio.ensure_future(send(client, parse_target("url", "http://slow/")))
        while not hanging.asked:
            await asyncio.sleep(0)
        await client.close()
        assert await sending == ("closed", "Holdfast is stopping")


# Connecting.


async def test_nobody_there() -> None:
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        port = plain.getsockname()[1]
        async with a_client() as client:
            kind, reason = await send(client, parse_target("url", f"http://127.0.0.1:{port}/"))
    assert (kind, reason) == ("refused", f"cannot connect to 127.0.0.1 port {port}: Connection refused")


async def test_nobody_reacts() -> None:
    with swallowing_port() as port:
        async with a_client() as client:
            kind, reason = await send(client, parse_target("url", f"http://127.0.0.1:{port}/"), seconds=0.2)
    assert (kind, reason) == ("timeout", f"cannot connect to 127.0.0.1 port {port}: it does not react")


async def test_addresses_are_tried_in_turn(connected: list[str]) -> None:
    names = Names(there=[["127.0.0.2", "127.0.0.3", "127.0.0.1", "127.0.0.4"]])
    async with a_client(names) as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target("there")) == ANSWERED
    assert connected == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]


async def test_an_address_that_does_not_react_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    real = clients._connected_socket

    async def swallowed(address: str, port: int) -> socket.socket:
        return await real("127.0.0.1", silent if address == "127.0.0.9" else port)

    monkeypatch.setattr(clients, "_connected_socket", swallowed)
    monkeypatch.setattr(clients, "TRY_SECONDS", 0.1)
    names = Names(there=[["127.0.0.9", "127.0.0.1"]])
    with swallowing_port() as silent:
        async with a_client(names) as client, endpoint(answering(OK)) as there:
            assert await send(client, there.target("there"), seconds=30) == ANSWERED


async def test_not_every_address_of_very_many_is_tried(connected: list[str]) -> None:
    names = Names(there=[[f"127.0.1.{number}" for number in range(250)]])
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        async with a_client(names) as client:
            target = parse_target("url", f"http://there:{plain.getsockname()[1]}/")
            assert (await send(client, target))[0] == "refused"
    assert len(connected) == clients.MOST_ADDRESSES


# What is blocked.

ODD_LITERALS = ["0x7f.1", "2130706433", "127.1", "0177.0.0.1", "0x7f000001", "１２７.0.0.1", "127。0。0。1"]
ODD_IPV6_LITERALS = [
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::a00:1]",
    "[2002:a00:1::]",
    "[::]",
    "[::1]",
]
SPECIAL = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[2001::1]",
    "[2001:db8::1]",
    "[2002::1]",
    "[fd00::1]",
    "[fe80::1]",
    "[ff02::1]",
]


@pytest.mark.parametrize("host", [*SPECIAL, *ODD_LITERALS, *ODD_IPV6_LITERALS, "localhost"])
async def test_a_blocked_address_is_not_connected_to(host: str, connected: list[str]) -> None:
    async with a_client(allow=()) as client, endpoint(answering(OK)) as there:
        kind, reason = await send(client, there.target(host))
        assert kind == "blocked"
        assert "outgoing.allow" in str(reason)
        assert there.connections == 0
    assert connected == []


@pytest.mark.parametrize("host", ODD_LITERALS)
async def test_odd_forms_do_lead_there(host: str) -> None:
    """Else the test above would show nothing."""
    async with a_client() as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target(host)) == ANSWERED


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "10.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "0.0.0.0",
        "not an address",
    ],
)
async def test_a_name_that_leads_to_a_blocked_address(address: str, connected: list[str]) -> None:
    async with a_client(Names(inner=[[address]]), allow=()) as client, endpoint(answering(OK)) as there:
        assert (await send(client, there.target("inner")))[0] == "blocked"
        assert there.connections == 0
    assert connected == []


async def test_a_name_that_leads_elsewhere_the_second_time(
    connected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolvers, "CACHE_SECONDS", 0.0)
    names = Names(there=[["127.0.0.1"], ["169.254.169.254"]])
    async with a_client(names) as client, endpoint(answering(ANSWERS_AND_CLOSES)) as there:
        assert await send(client, there.target("there")) == ANSWERED
        kind, reason = await send(client, there.target("there"))
        assert kind == "blocked"
        assert "169.254.169.254" in str(reason)
        assert there.connections == 1
    assert names.asked == ["there", "there"]
    assert connected == ["127.0.0.1"]


async def test_a_name_is_not_looked_up_between_check_and_connect(
    connected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolvers, "CACHE_SECONDS", 0.0)
    names = Names(there=[["127.0.0.1"], ["169.254.169.254"]])
    async with a_client(names) as client, endpoint(answering(OK)) as there:
        for _ in range(3):
            assert await send(client, there.target("there")) == ANSWERED  # over the connection that was checked
    assert names.asked == ["there"]
    assert connected == ["127.0.0.1"]


async def test_of_many_addresses_only_the_allowed_are_tried(connected: list[str]) -> None:
    names = Names(there=[["169.254.169.254", "10.0.0.1", "127.0.0.1", "::ffff:10.0.0.2"]])
    async with a_client(names) as client, endpoint(answering(OK)) as there:
        assert await send(client, there.target("there")) == ANSWERED
    assert connected == ["127.0.0.1"]


async def test_a_blocked_address_is_not_tried_after_an_allowed_one_failed(connected: list[str]) -> None:
    names = Names(there=[["8.8.8.8", "169.254.169.254", "127.0.0.1"]])
    async with a_client(names, allow=()) as client, endpoint(answering(OK)) as there:
        assert (await send(client, there.target("there")))[0] == "refused"
        assert there.connections == 0
    assert connected == ["8.8.8.8"]


@pytest.mark.parametrize("location", ["http://169.254.169.254/latest/", "http://127.0.0.2:{port}/"])
async def test_a_redirect_to_a_blocked_address(location: str, connected: list[str]) -> None:
    async with endpoint(answering(OK), host="127.0.0.2") as inner:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {location.format(port=inner.port)}\r\nContent-Length: 0\r\n\r\n"
        async with a_client() as client, endpoint(answering(moved.encode())) as there:
            assert await send(client, there.target()) == ("answer", 302)
        assert inner.connections == 0
    assert connected == ["127.0.0.1"]


async def test_the_second_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a connection to lead elsewhere than to the address that was checked, nothing would be sent."""
    real = clients._connected_socket

    async def astray(address: str, port: int) -> socket.socket:
        return await real("127.0.0.2", port)

    monkeypatch.setattr(clients, "_connected_socket", astray)
    guard = AddressGuard(also=[])

    def allowed(address: str, port: int, path: str) -> str | None:
        return None if address == "127.0.0.1" else "astray"

    monkeypatch.setattr(guard, "why_blocked", allowed)
    client = OutgoingClient(guard)
    async with endpoint(answering(OK), host="127.0.0.2") as there:
        assert await send(client, there.target()) == ("blocked", "astray")
        await there.ended.get()
        assert there.requests == []
    await client.close()


async def test_our_own_consumer_is_reached_whatever_is_allowed() -> None:
    async with endpoint(answering(OK)) as consumer, endpoint(answering(OK)) as other:
        client = OutgoingClient(AddressGuard(also=[("127.0.0.1", consumer.port, "/push")]))
        assert await send(client, consumer.target()) == ANSWERED
        assert (await send(client, other.target()))[0] == "blocked"
        assert (await send(client, consumer.target(path="/admin")))[0] == "blocked"
        await client.close()


async def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would connect for us to what we must not."""
    async with endpoint(answering(OK)) as proxy, endpoint(answering(OK)) as there, a_client() as client:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        target = there.target()
        assert isinstance(await client.send(target, post(target), 10), clients.Answer)
        assert proxy.connections == 0


async def test_many_names_that_hang_leave_threads_for_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in ("KNOWN_THREADS", "NEW_THREADS", "SUSPECT_THREADS"):
        monkeypatch.setattr(resolvers, threads, 2)
    go = threading.Event()

    def resolve(name: str) -> Sequence[str]:
        if name.startswith("hangs"):
            go.wait(20)
            raise OSError("no such name")
        return ["127.0.0.1"]

    client = OutgoingClient(AddressGuard(LOOPBACK), resolve=resolve)
    try:
        async with endpoint(answering(OK)) as there:
            assert await send(client, there.target("known")) == ANSWERED
            monkeypatch.setattr(resolvers, "CACHE_SECONDS", 0.0)
            hanging = [asyncio.ensure_future(send(client, there.target(f"hangs{n}"), seconds=15)) for n in range(8)]
            await asyncio.sleep(0)
            # New itself, and behind them: it was never asked for, so nobody may hold that against its endpoint.
            kind, error = await send(client, there.target("new"), seconds=0.1)
            assert (kind, error) == ("unsent", "cannot resolve new: too many other names hang")
            assert await send(client, there.target("known"), seconds=5) == ANSWERED
            go.set()
            assert {kind for kind, _ in await asyncio.gather(*hanging)} == {"dns"}
            assert await send(client, there.target("new"), seconds=5) == ANSWERED
    finally:
        go.set()
        await client.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
async def test_what_this_machine_lacks_is_not_the_endpoints_fault(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    async def fails(address: str, port: int) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(clients, "_connected_socket", fails)
    async with a_client() as client:
        kind, error = await send(client, parse_target("url", "http://127.0.0.1:9/"))
    assert kind == "unsent"
    assert os.strerror(number) in str(error)
