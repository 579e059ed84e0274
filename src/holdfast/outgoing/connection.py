"""One HTTP/1.1 connection to an endpoint: a request goes out, its answer comes back, then the next.

Where it leads and whether that is allowed was settled before. It never raises for what an endpoint does, keeps no
more of an answer than was asked for, and is not used again unless both sides agree where the answer ended. Requests
whose answer has no body whatever its head says (HEAD, CONNECT) are not for it.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from holdfast.outgoing.answers import STOPPING, Answer, NoAnswer, Outcome, no_answer

MOST_HEAD_BYTES = 64 << 10
MOST_HEADERS = 100

# A body that nobody wants is read for the sake of the connection. Beyond this, a new connection is cheaper.
MOST_UNWANTED_BYTES = 64 << 10
UNWANTED_SECONDS = 1.0

# A byte in a chunk of its own takes six.
_CHUNKED_OVERHEAD = 8

Origin = tuple[str, str, int, str]
"""Scheme, host and port; and the path, where what may be connected to depends on it."""

NEVER_ANSWERED = NoAnswer("closed", "the endpoint closed the connection without an answer")
_CUT_SHORT = NoAnswer("closed", "the endpoint closed the connection in the middle of its answer")
_SPOKE_FIRST = NoAnswer("malformed", "the endpoint spoke before it was asked; this is not HTTP")
_SWITCHED = NoAnswer("malformed", "the endpoint wants to speak another protocol (101)")
_LARGE_HEAD = NoAnswer("too_large", f"the answer's headers are larger than {MOST_HEAD_BYTES} bytes")
_MANY_HEADERS = NoAnswer("too_large", f"the answer has more than {MOST_HEADERS} headers")
_DROPPED = NoAnswer("closed", "the request was given up")


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    """Someone waits for the body, or nobody does and it is thrown away."""
    COMPLETE = auto()
    CLOSED = auto()


class Owner(Protocol):
    """Is told about a connection's life."""

    def opened(self, connection: Connection) -> None: ...

    def put(self, connection: Connection) -> None:
        """It can take another request."""
        ...

    def may_drain(self, connection: Connection) -> bool:
        """Whether it may stay open for the rest of an answer that nobody wants. Asked once an answer."""
        ...

    def not_kept(self, connection: Connection) -> None:
        """Its answer was good, and the endpoint wants no more on it."""
        ...

    def forget(self, connection: Connection) -> None:
        """It must not be given another request."""
        ...

    def gone(self, connection: Connection) -> None:
        """Its socket is closed."""
        ...


class Connection(asyncio.Protocol):
    def __init__(self, origin: Origin, owner: Owner) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._owner = owner
        self._phase = _Phase.IDLE
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[Outcome] | None = None
        self._fault: NoAnswer | None = None
        self._unwanted_timer: asyncio.TimerHandle | None = None
        # Of the answer under way.
        self._bytes_left = 0
        self._most_body_bytes = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._header_lines = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._usable_again = False
        self._was_used = False

    # For who sends.

    @property
    def is_usable(self) -> bool:
        """It waits for its next request."""
        return self._phase is _Phase.IDLE

    def ask(self, request: bytes | tuple[bytes, ...], most_body_bytes: int) -> asyncio.Future[Outcome]:
        waiter: asyncio.Future[Outcome] = self._loop.create_future()
        if not self.is_usable:
            # What ended it while nobody used it says nothing of this request, which can go another way.
            waiter.set_result(NEVER_ANSWERED if self._was_used else self._fault or NEVER_ANSWERED)
            return waiter
        self._was_used = True
        self._phase = _Phase.HEAD
        self._waiter = waiter
        self._bytes_left = MOST_HEAD_BYTES
        self._most_body_bytes = most_body_bytes
        self._headers = {}
        self._header_lines = 0
        if isinstance(request, bytes):
            self._transport.write(request)
        else:
            self._transport.writelines(request)
        return waiter

    def give_up(self, waiter: asyncio.Future[Outcome], outcome: NoAnswer = _DROPPED) -> None:
        """Does nothing once that request is answered: the connection may be another's by now."""
        if self._waiter is waiter:
            self._fail(outcome)

    def stop(self, outcome: NoAnswer = STOPPING) -> None:
        self._fail(outcome)

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase is _Phase.IDLE:
            self._fail(_SPOKE_FIRST)
        elif phase is _Phase.CLOSED:
            return
        elif len(data) <= self._bytes_left:
            self._bytes_left -= len(data)
            self._read(data)
        else:
            self._read_to_the_limit(data)

    def eof_received(self) -> None:
        """Not left to connection_lost, which comes only after all that was written has gone out."""
        self._ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        self._owner.gone(self)
        del self._parser  # which knows us too: this ends the cycle

    # The answer.

    def _read(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._phase is _Phase.COMPLETE:
                self._usable_again = False  # the answer was good, and what follows is nobody's
            elif self._fault is None:
                self._fault = no_answer("malformed", f"the answer is not valid HTTP: {error}")
        if self._fault is not None:
            self._fail(self._fault)
        elif self._phase is _Phase.COMPLETE:
            self._finish()
        elif self._phase is _Phase.BODY and self._waiter is None:
            self._throw_away_the_rest()

    def _read_to_the_limit(self, data: bytes) -> None:
        """More has come than the part of the answer that is being read may have; it may end before that."""
        phase, limit = self._phase, self._bytes_left
        self._bytes_left = 0
        self._read(data[:limit])
        if self._phase is _Phase.CLOSED:
            return
        if self._phase is not phase:
            self.data_received(data[limit:])
        else:
            self._fail(_LARGE_HEAD if phase is _Phase.HEAD else self._large_body())

    def on_message_begin(self) -> None:
        if self._phase is not _Phase.HEAD:
            # Whatever it is, the next request must not take it for its answer.
            self._usable_again = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _Phase.HEAD:
            return  # trailers
        self._header_lines += 1
        if self._header_lines > MOST_HEADERS:
            self._fault = _MANY_HEADERS
            return
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t"))

    def on_headers_complete(self) -> None:
        if self._phase is not _Phase.HEAD or self._fault is not None:
            return
        self._status = status = self._parser.get_status_code()
        if status < 200 and status != 102:
            if status == 101:
                self._fault = _SWITCHED
            self._headers = {}  # 100, 103: the answer is still to come
            return
        self._phase = _Phase.BODY
        # Servers that answer before they have read the request often close, or read on from the wrong place. Those
        # that still process (102) will answer once more. Those of HTTP/1.0 may mean anything by keep-alive.
        self._usable_again = (
            self._parser.should_keep_alive()
            and status != 102
            and not self._transport.get_write_buffer_size()
            and self._parser.get_http_version() == "1.1"
        )
        if self._most_body_bytes:
            self._bytes_left = MOST_HEAD_BYTES + _CHUNKED_OVERHEAD * self._most_body_bytes
            self._body = []
            self._body_bytes = 0
        else:
            self._bytes_left = MOST_UNWANTED_BYTES
            self._settle(Answer(status, self._headers))

    def on_body(self, body: bytes) -> None:
        if self._waiter is None:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._most_body_bytes:
            self._fault = self._large_body()
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._phase is _Phase.BODY:
            self._phase = _Phase.COMPLETE

    # The end of an answer, or of the connection.

    def _settle(self, outcome: Outcome) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    def _finish(self) -> None:
        if self._waiter is not None:
            self._settle(Answer(self._status, self._headers, b"".join(self._body)))
            self._body = []
        if self._unwanted_timer is not None:
            self._unwanted_timer.cancel()
            self._unwanted_timer = None
        if self._usable_again:
            self._phase = _Phase.IDLE
            self._owner.put(self)
        else:
            self._owner.not_kept(self)
            self._close()

    def _throw_away_the_rest(self) -> None:
        if not self._usable_again or not (self._unwanted_timer or self._owner.may_drain(self)):
            self._close()
        elif self._unwanted_timer is None:
            self._unwanted_timer = self._loop.call_later(UNWANTED_SECONDS, self._close)

    def _large_body(self) -> NoAnswer:
        why = f"the answer's body is larger than {self._most_body_bytes} bytes"
        return NoAnswer("too_large", why, self._status)

    def _ended(self) -> None:
        """The endpoint has closed the connection, or it broke."""
        if self._phase is _Phase.HEAD:
            self._fail(NEVER_ANSWERED if self._bytes_left == MOST_HEAD_BYTES else _CUT_SHORT)
        elif self._phase is _Phase.BODY and self._waiter is not None and self._ends_with_the_connection():
            self._usable_again = False
            self._finish()
        else:
            self._fail(_CUT_SHORT if self._waiter is not None else NEVER_ANSWERED)

    def _ends_with_the_connection(self) -> bool:
        """The head said no other end, so this is the whole body."""
        return "content-length" not in self._headers and "transfer-encoding" not in self._headers

    def _fail(self, outcome: NoAnswer) -> None:
        self._fault = self._fault or outcome
        self._settle(outcome)
        self._close()

    def _close(self) -> None:
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        if self._unwanted_timer is not None:
            self._unwanted_timer.cancel()
        self._owner.forget(self)
        self._transport.abort()
