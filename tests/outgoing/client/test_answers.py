"""What an endpoint may answer, from the good to the hostile, and what is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.outgoing import connection as connections
from holdfast.outgoing.answers import LONGEST_REASON
from holdfast.outgoing.client import Answer, NoAnswer, OutgoingClient
from tests.outgoing.client.endpoint import OK, Behave, Visit, answering, endpoint, post, send

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")


def saying(*pieces: bytes, then: Callable[[Visit], None] | None = None) -> Behave:
    """One request is read, these pieces go out one by one, then the connection is closed, or what `then` does to it."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        for piece in pieces:
            await visit.say(piece)
            await asyncio.sleep(0)
        if then is not None:
            then(visit)
            return
        visit.writer.write_eof()
        await visit.left()

    return behave


def hanging_after(*pieces: bytes) -> Behave:
    async def behave(visit: Visit) -> None:
        await visit.request()
        for piece in pieces:
            await visit.say(piece)
        await visit.left()

    return behave


# Good manners.


async def test_a_request_arrives_as_it_is_and_its_answer_comes_back(client: OutgoingClient) -> None:
    said = (
        b"HTTP/1.1 202 Accepted\r\nX-Mixed-CASE:  two words \r\nX-Twice: 1\r\nX-Twice: 2\r\nContent-Length: 0\r\n\r\n"
    )
    async with endpoint(answering(said)) as there:
        request = post(there.target(), b'{"message": 1}')
        answer = await client.send(there.target(), request, 10)
        assert there.requests == [request]
    assert answer == Answer(202, {"x-mixed-case": "two words", "x-twice": "1", "content-length": "0"})


async def test_a_request_in_pieces(client: OutgoingClient) -> None:
    async with endpoint(answering(OK)) as there:
        head, body = post(there.target(), b"0123456789")[:-10], b"0123456789"
        answer = await client.send(there.target(), (head, body[:5], body[5:]), 10)
        assert there.requests == [head + body]
    assert isinstance(answer, Answer)


@pytest.mark.parametrize("status", [200, 201, 204, 299, 301, 304, 307, 400, 404, 408, 413, 429, 500, 503, 599, 999])
async def test_every_final_status_is_an_answer(client: OutgoingClient, status: int) -> None:
    async with endpoint(answering(b"HTTP/1.1 %d \r\nContent-Length: 0\r\n\r\n" % status)) as there:
        assert await send(client, there.target()) == ("answer", status)


async def test_a_redirect_is_not_followed(client: OutgoingClient) -> None:
    async with endpoint(answering(OK)) as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}/"
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        async with endpoint(answering(moved)) as there:
            answer = await client.send(there.target(), post(there.target()), 10)
        assert answer == Answer(307, {"location": location, "content-length": "0"})
        assert elsewhere.connections == 0


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"01234", b"56789"],
        [bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"],
        [CHUNKED, b"5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\nX-Trailer: late\r\n\r\n"],
        [CHUNKED + b"1\r\n0\r\n", b"9\r\n123456789\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\n0123456789"],
        [b"HTTP/1.0 200 OK\r\n\r\n01234", b"56789"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"],
    ],
    ids=["at once", "in pieces", "byte by byte", "chunked", "chunks in pieces", "until closed", "HTTP/1.0", "hints"],
)
async def test_a_body_that_is_wanted(client: OutgoingClient, pieces: list[bytes]) -> None:
    async with endpoint(saying(*pieces)) as there:
        answer = await client.send(there.target(), post(there.target()), 10, most_body_bytes=10)
        assert isinstance(answer, Answer)
        assert answer.body == b"0123456789"
        assert "x-trailer" not in answer.headers
        assert "link" not in answer.headers


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_that_never_have_a_body(client: OutgoingClient, status: bytes) -> None:
    async with endpoint(answering(b"HTTP/1.1 " + status + b"\r\nETag: x\r\nContent-Length: 1234\r\n\r\n")) as there:
        for _ in range(2):
            answer = await client.send(there.target(), post(there.target()), 10, most_body_bytes=5000)
            assert isinstance(answer, Answer)
            assert answer.body == b""
        assert there.connections == 1


async def test_the_answer_does_not_wait_for_a_body_that_nobody_wants(client: OutgoingClient) -> None:
    go_on = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        await go_on.wait()
        await visit.say(b"0123456789")
        await visit.request()
        await visit.say(OK)
        await visit.left()

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ("answer", 200)
        first = next(iter(client._pool._open))
        freed = asyncio.Event()
        put = client._pool.put

        def put_and_tell(connection: connections.Connection) -> None:
            put(connection)
            freed.set()

        client._pool.put = put_and_tell  # type: ignore[method-assign]
        go_on.set()
        await freed.wait()
        assert await send(client, there.target()) == ("answer", 200)
        assert there.connections == 1
        assert client._pool._open == {first}


async def test_a_large_request_goes_through_whole(client: OutgoingClient) -> None:
    body = bytes(range(256)) * (13 << 12)
    async with endpoint(answering(OK)) as there:
        assert await send(client, there.target(), body=body) == ("answer", 200)
        assert there.requests[0].endswith(b"\r\n\r\n" + body)
        assert len(there.requests[0]) == len(post(there.target(), body))


# Before the answer.


@pytest.mark.parametrize(
    "before",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 199 What\r\n\r\n",
        b"\r\n\r\n",
    ],
)
async def test_what_comes_before_the_answer_is_skipped(client: OutgoingClient, before: bytes) -> None:
    async with endpoint(answering(before + OK)) as there:
        for _ in range(2):
            answer = await client.send(there.target(), post(there.target()), 10)
            assert answer == Answer(200, {"content-length": "2"})
        assert there.connections == 1


async def test_an_answer_long_after_what_comes_before_it(client: OutgoingClient) -> None:
    async with endpoint(saying(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\n\r\n", OK)) as there:
        assert await send(client, there.target()) == ("answer", 200)


async def test_nothing_after_what_comes_before_the_answer(client: OutgoingClient) -> None:
    async with endpoint(hanging_after(b"HTTP/1.1 100 Continue\r\n\r\n")) as there:
        assert await send(client, there.target(), seconds=0.1) == ("timeout", "no answer within 0.1 s")


async def test_endless_hints(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        while True:
            await visit.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)

    async with endpoint(behave) as there:
        assert (await send(client, there.target()))[0] == "too_large"


@pytest.mark.parametrize("most_body_bytes", [0, 100])
async def test_102_is_an_answer_and_the_last_one_on_its_connection(
    client: OutgoingClient, most_body_bytes: int
) -> None:
    async with endpoint(hanging_after(b"HTTP/1.1 102 Processing\r\n\r\n")) as there:
        assert await send(client, there.target(), most_body_bytes=most_body_bytes) == ("answer", 102)
        assert not client._pool._idle
        await there.ended.get()


@pytest.mark.parametrize("upgrade", [b"", b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
async def test_101_is_malformed(client: OutgoingClient, upgrade: bytes) -> None:
    async with endpoint(hanging_after(b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade + b"\r\n\x81\x02")) as there:
        kind, reason = await send(client, there.target())
        assert (kind, "101" in str(reason)) == ("malformed", True)
        await there.ended.get()


async def test_an_answer_before_the_request_is_written(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        visit.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await visit.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        answered.set()
        await closed.wait()
        visit.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await visit.left()

    answered, closed = asyncio.Event(), asyncio.Event()
    async with endpoint(behave) as there:
        assert await send(client, there.target(), body=bytes(50 << 20)) == ("answer", 413)
        assert not client._pool._idle
        closed.set()
        await there.ended.get()


# Too much.


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"y" * 1000),
        (b"HTTP/1.1 200 ", b"y" * 1000),
        (b"", b"\r\n" * 1000),
    ],
    ids=["headers", "a header", "a header's name", "a reason", "empty lines"],
)
async def test_a_head_without_end(client: OutgoingClient, head: bytes, endless: bytes) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(head)
        while True:
            await visit.say(endless)

    async with endpoint(behave) as there:
        kind, reason = await send(client, there.target())
        assert (kind, reason) == ("too_large", "the answer's headers are larger than 65536 bytes")
        await there.ended.get()


@pytest.mark.parametrize(("size", "kind"), [(60 << 10, "answer"), (70 << 10, "too_large"), (200 << 10, "too_large")])
async def test_the_size_of_a_head(client: OutgoingClient, size: int, kind: str) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"y" * size + b"\r\n\r\n"
    async with endpoint(answering(said)) as there:
        assert (await send(client, there.target()))[0] == kind


async def test_a_large_body_behind_a_small_head(client: OutgoingClient) -> None:
    """However the bytes are cut on their way, the head is small."""
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
    async with endpoint(answering(said)) as there:
        answer = await client.send(there.target(), post(there.target()), 10, most_body_bytes=1_000_000)
        assert isinstance(answer, Answer)
        assert answer.body == bytes(1_000_000)
        assert await send(client, there.target(), most_body_bytes=1_000_000) == ("answer", 200)
        assert there.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + bytes(101),
        CHUNKED + b"65\r\n" + bytes(101) + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(101),
    ],
    ids=["length", "chunked", "until closed"],
)
async def test_a_body_that_is_larger_than_wanted(client: OutgoingClient, said: bytes) -> None:
    async with endpoint(saying(said)) as there:
        reason = "the answer's body is larger than 100 bytes"
        assert await send(client, there.target(), most_body_bytes=100) == ("too_large", reason)
        outcome = await client.send(there.target(), post(there.target()), 10.0, most_body_bytes=100)
        assert isinstance(outcome, NoAnswer)
        assert outcome.began_with == 200


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (CHUNKED + b"1;", b"x" * 1000),
        (CHUNKED + b"0\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
        (CHUNKED + b"0\r\nX: ", b"y" * 1000),
    ],
    ids=["chunk extension", "trailers", "a trailer"],
)
@pytest.mark.parametrize("most_body_bytes", [0, 100])
async def test_what_surrounds_a_body_has_an_end_too(
    client: OutgoingClient, start: bytes, endless: bytes, most_body_bytes: int
) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(start)
        while True:
            await visit.say(endless)

    async with endpoint(behave) as there:
        kind, _ = await send(client, there.target(), most_body_bytes=most_body_bytes)
        assert kind == ("too_large" if most_body_bytes else "answer")
        await there.ended.get()


async def test_200_megabytes_that_nobody_wants(client: OutgoingClient) -> None:
    sent = 0

    async def behave(visit: Visit) -> None:
        nonlocal sent
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        while sent < 200 << 20:
            await visit.say(bytes(1 << 20))
            sent += 1 << 20

    async with endpoint(behave) as there:
        assert await send(client, there.target()) == ("answer", 200)
        await there.ended.get()
        assert sent < 100 << 20
        assert await send(client, there.target()) == ("answer", 200)
        assert there.connections == 2


async def test_a_body_that_drips_is_not_waited_for(client: OutgoingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNWANTED_SECONDS", 0.1)
    async with endpoint(hanging_after(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0", b"1")) as there:
        assert await send(client, there.target()) == ("answer", 200)
        await there.ended.get()


# Too little.


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\n", b"H"])
async def test_an_endpoint_that_hangs(client: OutgoingClient, said: bytes) -> None:
    async with endpoint(hanging_after(said)) as there:
        assert await send(client, there.target(), seconds=0.1) == ("timeout", "no answer within 0.1 s")
        await there.ended.get()  # we have closed the connection


async def test_a_head_that_drips_for_longer_than_the_timeout(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            await visit.say(b"X: y\r\n")
            await asyncio.sleep(0.01)

    async with endpoint(behave) as there:
        assert await send(client, there.target(), seconds=0.2) == ("timeout", "no answer within 0.2 s")
        await there.ended.get()


async def test_a_body_that_is_wanted_and_hangs(client: OutgoingClient) -> None:
    async with endpoint(hanging_after(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0")) as there:
        kind, _ = await send(client, there.target(), seconds=0.1, most_body_bytes=10)
        assert kind == "timeout"
        await there.ended.get()


async def test_an_endpoint_that_does_not_read(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        visit.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await gave_up.wait()
        visit.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await visit.left()

    gave_up = asyncio.Event()
    async with endpoint(behave) as there:
        assert (await send(client, there.target(), seconds=0.2, body=bytes(50 << 20)))[0] == "timeout"
        gave_up.set()
        await there.ended.get()


async def test_an_endpoint_that_neither_reads_nor_will_answer(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        visit.reader._transport.pause_reading()  # type: ignore[attr-defined]
        visit.writer.write_eof()
        await gave_up.wait()

    gave_up = asyncio.Event()
    async with endpoint(behave) as there:
        assert (await send(client, there.target(), seconds=5, body=bytes(50 << 20)))[0] == "closed"
        gave_up.set()


@pytest.mark.parametrize("then", [None, Visit.reset], ids=["closes", "resets"])
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "without an answer"),
        (b"H", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", "in the middle"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "in the middle"),
    ],
)
async def test_a_connection_that_ends_in_the_head(
    client: OutgoingClient, said: bytes, reason: str, then: Callable[[Visit], None] | None
) -> None:
    arrived = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(said)
        if then is None:
            return
        if said:
            await arrived.wait()  # a reset takes with it what was not read
        then(visit)

    read = connections.Connection._read

    def noticed(self: connections.Connection, data: bytes) -> None:
        read(self, data)
        arrived.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections.Connection, "_read", noticed)
        async with endpoint(behave) as there:
            kind, error = await send(client, there.target())
            assert (kind, reason in str(error)) == ("closed", True)
            assert there.connections == 1


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n01", CHUNKED + b"3\r\n01", CHUNKED])
async def test_a_connection_that_ends_in_the_body(client: OutgoingClient, said: bytes) -> None:
    async with endpoint(saying(said)) as there:
        kind, reason = await send(client, there.target(), most_body_bytes=10)
        assert (kind, "in the middle" in str(reason)) == ("closed", True)
        assert await send(client, there.target()) == ("answer", 200)  # the status is all that counts here


# What is no HTTP.


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example.com ESMTP\r\n",
        b"<html>not found</html>",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA B: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n",
        bytes(range(256)) * 100,
    ],
)
async def test_what_is_no_http(client: OutgoingClient, said: bytes) -> None:
    async with endpoint(hanging_after(said)) as there:
        outcome = await client.send(there.target(), post(there.target()), 10)
        assert isinstance(outcome, NoAnswer)
        assert outcome.kind == "malformed"
        assert len(outcome.error) <= LONGEST_REASON
        assert outcome.error.isprintable()
        await there.ended.get()


@pytest.mark.parametrize("most_body_bytes", [0, 100])
async def test_chunks_that_are_none(client: OutgoingClient, most_body_bytes: int) -> None:
    async with endpoint(hanging_after(CHUNKED, b"zz\r\n")) as there:
        kind, _ = await send(client, there.target(), most_body_bytes=most_body_bytes)
        assert kind == ("malformed" if most_body_bytes else "answer")
        await there.ended.get()


async def test_an_endpoint_that_speaks_first(client: OutgoingClient) -> None:
    async def behave(visit: Visit) -> None:
        await visit.say(b"SSH-2.0-OpenSSH_9.6\r\n")
        await visit.left()

    async with endpoint(behave) as there:
        assert (await send(client, there.target()))[0] == "malformed"
        await there.ended.get()
