"""When a connection is used again, and when it must not be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from holdfast.outgoing import client as clients
from holdfast.outgoing import connection as connections
from holdfast.outgoing import pool as pools
from holdfast.outgoing.client import Answer, NoAnswer, OutgoingClient
from holdfast.outgoing.connection import Connection
from holdfast.outgoing.targets import Target
from tests.outgoing.client.endpoint import OK, Visit, answering, endpoint, post, send

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")

ANSWERED = ("answer", 200)


async def test_one_connection_serves_many_requests(client: OutgoingClient) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\n\r\n"
    async with endpoint(answering(OK, chunked, b"HTTP/1.1 204 No Content\r\n\r\n", OK)) as there:
        for status in (200, 200, 204, 200, 200):
            assert await send(client, there.target()) == ("answer", status)
        assert len(there.requests) == 5
        assert there.connections == 1


async def test_each_endpoint_has_its_own(client: OutgoingClient) -> None:
    async with endpoint(answering(OK)) as here, endpoint(answering(OK)) as there:
        for _ in range(2):
            assert await send(client, here.target()) == ANSWERED
            assert await send(client, there.target()) == ANSWERED
        assert (len(here.requests), here.connections) == (2, 1)
        assert (len(there.requests), there.connections) == (2, 1)


class HeldBack:
    """Answers only when told, by the body of the request."""

    def __init__(self, *bodies: bytes) -> None:
        self.go = {body: asyncio.Event() for body in bodies}
        self.arrived = {body: asyncio.Event() for body in bodies}
        self.visits: dict[bytes, Visit] = {}

    async def __call__(self, visit: Visit) -> None:
        while True:
            body = (await visit.request()).rpartition(b"\r\n\r\n")[2]
            self.visits[body] = visit
            if body in self.go:
                self.arrived[body].set()
                await self.go[body].wait()
            await visit.say(OK)

    async def send_all(self, client: OutgoingClient, target: Target) -> None:
        """All at once, answered one after the other."""
        sending = {body: asyncio.ensure_future(send(client, target, body=body)) for body in self.go}
        for arrived in self.arrived.values():
            await arrived.wait()
        for body, go in self.go.items():
            go.set()
            assert await sending[body] == ANSWERED


async def test_the_one_used_last_is_used_first(client: OutgoingClient) -> None:
    held = HeldBack(b"a", b"b", b"c")
    async with endpoint(held) as there:
        await held.send_all(client, there.target())
        assert there.connections == 3
        assert await send(client, there.target(), body=b"next") == ANSWERED
        assert held.visits[b"next"] is held.visits[b"c"]
        assert there.connections == 3


async def test_no_more_than_so_many_are_kept(client: OutgoingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MOST_IDLE", 2)
    held = HeldBack(b"a", b"b", b"c")
    async with endpoint(held) as there:
        await held.send_all(client, there.target())
        assert await there.ended.get() is held.visits[b"a"]
        assert there.ended.empty()


async def test_many_requests_share_few_connections_to_an_endpoint_that_is_quick(client: OutgoingClient) -> None:
    """A burst of connections would be more than a server accepts in time."""
    async with endpoint(answering(OK)) as there:
        answers = await asyncio.gather(*(send(client, there.target()) for _ in range(500)))
        assert answers == [ANSWERED] * 500
        assert there.connections < 100


class ConnectsWhenTold:
    """Holds back every connect of a client until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = 0
        self.go = asyncio.Event()
        self._connect = clients._connected_socket
        monkeypatch.setattr(clients, "_connected_socket", self)

    async def __call__(self, address: str, port: int) -> socket.socket:
        self.started += 1
        await self.go.wait()
        return await self._connect(address, port)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_only_so_many_connections_are_being_made_at_once(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ConnectsWhenTold(monkeypatch)
    async with endpoint(answering(OK)) as there, endpoint(answering(OK)) as other:
        sending = [asyncio.ensure_future(send(client, there.target())) for _ in range(20)]
        await turns()
        assert held.started == pools.MOST_CONNECTING
        elsewhere = asyncio.ensure_future(send(client, other.target()))
        await turns()
        assert held.started == pools.MOST_CONNECTING + 1
        held.go.set()
        assert await asyncio.gather(*sending, elsewhere) == [ANSWERED] * 21
    assert not client._pool._connecting
    assert not client._pool._waiting


async def test_who_gives_up_waiting_for_a_connection_leaves_it_to_the_next(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MOST_CONNECTING", 1)
    held = ConnectsWhenTold(monkeypatch)
    async with endpoint(answering(OK)) as there:
        first, gone, late, last = [
            asyncio.ensure_future(send(client, there.target(), seconds=seconds)) for seconds in (10, 10, 0.05, 10)
        ]
        await turns()
        gone.cancel()
        assert (await late)[0] == "unsent"
        first.cancel()  # its place goes to the last
        await turns()
        assert held.started == 2
        held.go.set()
        assert await last == ANSWERED
    assert not client._pool._connecting
    assert not client._pool._waiting


async def test_a_connection_given_to_one_who_has_just_left_is_not_lost(client: OutgoingClient) -> None:
    pool = client._pool
    async with endpoint(answering(OK)) as there:
        target = there.target()
        origin = client._origin_of(target)
        assert await send(client, target) == ANSWERED
        kept = pool.take(origin)
        assert kept is not None
        deadline = asyncio.get_running_loop().time() + 10
        for given in (kept, None):
            waiting = asyncio.ensure_future(pool.wait(origin, deadline))
            await turns()
            if given is None:
                assert pool.start_connecting(origin)
                pool.stop_connecting(origin)
            else:
                pool.put(given)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert pool.take(origin) is kept
        assert not pool._connecting
        pool.put(kept)


async def test_an_idle_connection_is_closed_after_a_while(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.1)
    async with endpoint(answering(OK)) as there:
        assert await send(client, there.target()) == ANSWERED
        await there.ended.get()
        assert await send(client, there.target()) == ANSWERED
        assert there.connections == 2
        await there.ended.get()
    assert not client._pool._by_origin


async def test_idle_connections_are_closed_each_in_its_turn(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.1)
    held = HeldBack(b"a", b"b", b"c")
    async with endpoint(held) as there:
        await held.send_all(client, there.target())
        assert [await there.ended.get() for _ in range(3)] == [held.visits[body] for body in (b"a", b"b", b"c")]


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        OK + OK,
        OK + b"H",
        OK + b"x",
        OK + b"\x00" * 100_000,
        b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nOK",
    ],
    ids=[
        "close",
        "close among others",
        "HTTP/1.0",
        "HTTP/1.0 keep-alive",
        "until closed",
        "until closed, encoded",
        "a second answer",
        "the start of a second answer",
        "garbage behind",
        "much garbage behind",
        "a body that cannot be",
    ],
)
async def test_what_ends_a_connection(client: OutgoingClient, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    # At once, and not after the time that a body or the next request may take.
    monkeypatch.setattr(connections, "UNWANTED_SECONDS", 3600.0)
    monkeypatch.setattr(pools, "IDLE_SECONDS", 3600.0)
    async with endpoint(answering(said)) as there:
        for number in (1, 2):
            assert (await send(client, there.target()))[0] == "answer"
            await there.ended.get()
            assert there.connections == number


async def test_a_second_answer_behind_a_body_that_is_wanted(client: OutgoingClient) -> None:
    async with endpoint(answering(OK + b"HTTP/1.1 500 \r\nContent-Length: 0\r\n\r\n", OK)) as there:
        for _ in range(2):
            answer = await client.send(there.target(), post(there.target()), 10, most_body_bytes=100)
            assert answer == Answer(200, {"content-length": "2"}, b"OK")
        assert there.connections == 2


async def test_bytes_on_an_idle_connection_end_it(client: OutgoingClient) -> None:
    answered = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await answered.wait()
        await visit.say(b"HTTP/1.1 500 Not yours\r\nContent-Length: 0\r\n\r\n")
        await visit.left()

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ANSWERED
        answered.set()
        await there.ended.get()
        assert await send(client, there.target()) == ANSWERED
        assert there.connections == 2


async def closed_while_idle(visit: Visit) -> None:
    await visit.request()
    await visit.say(OK)


async def test_an_endpoint_that_closes_between_two_requests(client: OutgoingClient) -> None:
    async with endpoint(closed_while_idle) as there:
        assert await send(client, there.target()) == ANSWERED
        await there.ended.get()
        assert await send(client, there.target()) == ANSWERED
        assert there.connections == 2


async def closes(visit: Visit) -> None:
    visit.writer.close()


async def resets(visit: Visit) -> None:
    visit.reset()


@pytest.mark.parametrize("ends", [closes, resets])
@pytest.mark.parametrize("most_body_bytes", [0, 100])
async def test_a_request_that_meets_a_closing_connection_is_sent_once_more(
    client: OutgoingClient, ends: Callable[[Visit], Awaitable[None]], most_body_bytes: int
) -> None:
    """As if the endpoint had closed just before the request came."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await visit.request()
        await ends(visit)

    async with endpoint(behave) as there:
        assert await send(client, there.target(), body=b"1") == ANSWERED
        assert await send(client, there.target(), body=b"2", most_body_bytes=most_body_bytes) == ANSWERED
        assert [request[-1:] for request in there.requests] == [b"1", b"2", b"2"]
        assert there.connections == 2


async def test_it_is_sent_no_more_than_twice(client: OutgoingClient) -> None:
    first = True

    async def behave(visit: Visit) -> None:
        nonlocal first
        await visit.request()
        if first:
            first = False
            await visit.say(OK)
            await visit.request()

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ANSWERED
        assert (await send(client, there.target()))[0] == "closed"
        assert len(there.requests) == 3
        assert there.connections == 2


async def test_not_once_more_when_an_answer_had_begun(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await visit.request()
        await visit.say(b"HTTP/1.1 2")

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ANSWERED
        kind, reason = await send(client, there.target())
        assert (kind, "in the middle" in str(reason)) == ("closed", True)
        assert len(there.requests) == 2


async def test_a_timeout_on_a_kept_connection_is_not_tried_again(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await visit.request()
        await visit.left()

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ANSWERED
        assert await send(client, there.target(), seconds=0.1) == ("timeout", "no answer within 0.1 s")
        assert len(there.requests) == 2


# Giving up.


async def test_a_cancelled_request_takes_its_connection_with_it(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 3600.0)
    held = HeldBack(b"a")
    async with endpoint(held) as there:
        sending = asyncio.ensure_future(send(client, there.target(), body=b"a"))
        await held.arrived[b"a"].wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        held.go[b"a"].set()
        await there.ended.get()
        assert await send(client, there.target(), body=b"b") == ANSWERED
        assert there.connections == 2


async def test_cancelled_just_when_the_answer_came_leaves_the_connection_to_others(client: OutgoingClient) -> None:
    async with endpoint(answering(OK)) as there:
        put = client._pool.put

        def put_and_cancel(connection: Connection) -> None:
            put(connection)
            sending.cancel()

        client._pool.put = put_and_cancel  # type: ignore[method-assign]
        sending = asyncio.ensure_future(send(client, there.target()))
        with pytest.raises(asyncio.CancelledError):
            await sending
        client._pool.put = put  # type: ignore[method-assign]
        assert await send(client, there.target()) == ANSWERED
        assert there.connections == 1


async def test_closing_ends_what_is_under_way(client: OutgoingClient) -> None:
    held = HeldBack(b"a")
    async with endpoint(held) as there:
        assert await send(client, there.target(), body=b"idle") == ANSWERED
        sending = asyncio.ensure_future(client.send(there.target(), post(there.target(), b"a"), 10))
        await held.arrived[b"a"].wait()
        await client.close()
        assert await sending == NoAnswer("closed", "Holdfast is stopping")
        held.go[b"a"].set()
        await there.ended.get()
        assert await send(client, there.target()) == ("closed", "Holdfast is stopping")
        assert there.connections == 1
        assert not client._pool._open


async def test_closing_twice(client: OutgoingClient) -> None:
    await client.close()
    await client.close()


async def test_to_a_place_that_keeps_nothing_more_connections_are_made(client: OutgoingClient) -> None:
    closing = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    async with endpoint(answering(closing)) as there:
        for _ in range(3):
            assert await send(client, there.target()) == ("answer", 204)
        target = there.target()
        origin = client._origin_of(target)
        assert client._pool._may_connect[origin] == pools.MOST_CONNECTING + 3 * pools.MORE_CONNECTING
        answers = await asyncio.gather(*(send(client, there.target()) for _ in range(100)))
        assert answers == [("answer", 204)] * 100


async def test_few_connections_stay_open_for_answers_that_nobody_wants(
    client: OutgoingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MOST_DRAINING", 2)
    monkeypatch.setattr(connections, "UNWANTED_SECONDS", 30.0)

    async def never_ends(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        await visit.left()

    async with endpoint(never_ends) as there:
        for _ in range(6):
            assert await send(client, there.target()) == ANSWERED
        for _ in range(4):
            await there.ended.get()
        assert there.ended.empty()
        assert len(client._pool._draining) == 2


async def test_an_answer_of_headers_without_end_is_cut_off(client: OutgoingClient) -> None:
    many = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101 + b"Content-Length: 0\r\n\r\n"
    async with endpoint(answering(many)) as there:
        assert await send(client, there.target()) == ("too_large", "the answer has more than 100 headers")
