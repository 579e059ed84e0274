"""Sends HTTP/1.1 requests that are bytes already, over connections that are kept, to addresses that are allowed.

What an endpoint does, fails to do, or is never gives an error here: it gives a NoAnswer with the reason. Redirects
are not followed, proxies are not used, cookies are not kept.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence

from holdfast.errors import SettingError
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.answers import STOPPING, Answer, NoAnswer, Outcome, no_answer
from holdfast.outgoing.connection import NEVER_ANSWERED, Connection, Origin
from holdfast.outgoing.pool import Pool
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.resolver import Resolve, Resolver, system_resolve
from holdfast.outgoing.targets import Target

__all__ = ["Answer", "NoAnswer", "OutgoingClient", "Resolve", "request_head"]

# A name may have any number of addresses. Of those that are allowed, so many are tried, one after the other, and
# each but the last for no longer than this: the next may work where the first one swallows everything.
MOST_ADDRESSES = 8

# A kept connection that the endpoint was just closing says so within a round trip. One that closes later has read the
# request and come to grief over it, and should not be given it again at once.
RESEND_SECONDS = 0.25
TRY_SECONDS = 3.0


# Of this machine: no endpoint was asked.
_OUR_OWN_ERRORS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
)


class OutgoingClient:
    def __init__(self, guard: AddressGuard, *, ca_file: str = "", resolve: Resolve | None = None) -> None:
        """`ca_file` names certificate authorities besides the system's; `resolve` replaces the system's resolver."""
        self._guard = guard
        self._pool = Pool()
        self._resolver = Resolver(resolve or system_resolve)
        # Reading the system's authorities takes 50 ms, so who never speaks TLS does not wait for it.
        self._tls = _tls_context(ca_file) if ca_file else None
        self._closed = False

    async def send(
        self,
        target: Target,
        request: bytes | tuple[bytes, ...],
        timeout_seconds: float,
        *,
        most_body_bytes: int = 0,
    ) -> Answer | NoAnswer:
        """The timeout covers everything. With `most_body_bytes` 0 the answer is given without its body, and sooner."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        origin = self._origin_of(target)
        kept = self._pool.take(origin)
        if kept is None and not self._pool.start_connecting(origin):
            try:
                kept = await self._pool.wait(origin, deadline)
            except TimeoutError:
                return NoAnswer("unsent", f"no connection to {target.authority} within {timeout_seconds:g} s")
        if kept is not None:
            asked = asyncio.get_running_loop().time()
            outcome = await _exchange(kept, request, deadline, timeout_seconds, most_body_bytes)
            if outcome is not NEVER_ANSWERED or asyncio.get_running_loop().time() - asked > RESEND_SECONDS:
                return outcome
            # Most likely it was closing while we wrote. Endpoints must bear a request that comes twice anyway.
            fresh = await self._connect(target, deadline)
        else:
            try:
                fresh = await self._connect(target, deadline)
            finally:
                self._pool.stop_connecting(origin)
        if isinstance(fresh, NoAnswer):
            return fresh
        return await _exchange(fresh, request, deadline, timeout_seconds, most_body_bytes)

    def _origin_of(self, target: Target) -> Origin:
        """A connection that may be made for one path only must not serve others."""
        return target.scheme, target.host, target.port, target.path if self._guard.has_exceptions else ""

    async def close(self) -> None:
        """Requests under way end with a NoAnswer."""
        self._closed = True
        self._resolver.close()
        await self._pool.close()

    # Connecting.

    async def _connect(self, target: Target, deadline: float) -> Connection | NoAnswer:
        if self._closed:
            return STOPPING
        # Each step has a timeout of its own. Nested ones that end together would, before Python 3.13, leave the task
        # cancelled by the inner one after the outer one has been dealt with.
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._allowed_addresses(target)
        except TimeoutError:
            if not self._resolver.has_begun(target.host):
                return no_answer("unsent", f"cannot resolve {target.host}: too many other names hang")
            return no_answer("timeout", f"cannot resolve {target.host}: no answer from DNS")
        if isinstance(addresses, NoAnswer):
            return addresses
        return await self._connect_to_one(target, addresses, deadline)

    async def _allowed_addresses(self, target: Target) -> Sequence[str] | NoAnswer:
        found = [target.host] if _is_address(target.host) else await self._resolver.addresses(target.host)
        if isinstance(found, NoAnswer):
            return found
        blocked = {address: self._guard.why_blocked(address, target.port, target.path) for address in found}
        allowed = [address for address, why in blocked.items() if why is None]
        return allowed[:MOST_ADDRESSES] or _blocked(target, blocked[found[0]])

    async def _connect_to_one(self, target: Target, addresses: Sequence[str], deadline: float) -> Connection | NoAnswer:
        loop = asyncio.get_running_loop()
        opened: Connection | NoAnswer = NEVER_ANSWERED
        for tries_left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            left = deadline - loop.time()
            seconds = left if tries_left == 1 else min(left / tries_left, TRY_SECONDS)
            opened = await self._open(target, address, loop.time() + seconds)
            if isinstance(opened, Connection):
                break
        return opened

    async def _open(self, target: Target, address: str, deadline: float) -> Connection | NoAnswer:
        where = f"{address} port {target.port}"
        try:
            async with asyncio.timeout_at(deadline):
                plain = await _connected_socket(address, target.port)
        except TimeoutError:
            return no_answer("timeout", f"cannot connect to {where}: it does not react")
        except OSError as error:
            kind = "unsent" if error.errno in _OUR_OWN_ERRORS else "refused"
            return no_answer(kind, f"cannot connect to {where}: {_words(error)}")
        try:
            async with asyncio.timeout_at(deadline):
                connection, transport = await self._speak_http(target, plain)
        except TimeoutError:
            return no_answer("timeout", f"no TLS handshake with {where}")
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or error
            return no_answer("tls", f"no TLS handshake with {where}: {why}")
        except OSError as error:
            return no_answer("tls", f"no TLS handshake with {where}: {_words(error)}")
        return self._checked(connection, transport, target)

    async def _speak_http(self, target: Target, plain: socket.socket) -> tuple[Connection, asyncio.BaseTransport]:
        loop = asyncio.get_running_loop()
        origin = self._origin_of(target)
        try:
            if target.scheme == "http":
                transport, connection = await loop.create_connection(lambda: Connection(origin, self._pool), sock=plain)
            else:
                transport, connection = await loop.create_connection(
                    lambda: Connection(origin, self._pool),
                    sock=plain,
                    ssl=await self._tls_context(),
                    server_hostname=target.host.rstrip("."),
                    ssl_shutdown_timeout=1.0,
                )
        except BaseException:
            plain.close()
            raise
        return connection, transport

    def _checked(
        self, connection: Connection, transport: asyncio.BaseTransport, target: Target
    ) -> Connection | NoAnswer:
        """A second lock: whatever happened on the way, the socket itself says where it leads."""
        refused: NoAnswer | None = None
        peer = transport.get_extra_info("peername")
        if self._closed:
            refused = STOPPING
        elif not peer:
            refused = NEVER_ANSWERED  # it is closed already
        elif (why := self._guard.why_blocked(peer[0], target.port, target.path)) is not None:
            refused = _blocked(target, why)
        if refused is None:
            return connection
        connection.stop()
        return refused

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_tls_context, "")
        return self._tls


async def _exchange(
    connection: Connection,
    request: bytes | tuple[bytes, ...],
    deadline: float,
    timeout_seconds: float,
    most_body_bytes: int,
) -> Outcome:
    waiter = connection.ask(request, most_body_bytes)
    timer = asyncio.get_running_loop().call_at(deadline, _expire, connection, waiter, timeout_seconds)
    try:
        return await waiter
    except asyncio.CancelledError:
        connection.give_up(waiter)
        raise
    finally:
        timer.cancel()


def _expire(connection: Connection, waiter: asyncio.Future[Outcome], timeout_seconds: float) -> None:
    connection.give_up(waiter, NoAnswer("timeout", f"no answer within {timeout_seconds:g} s"))


async def _connected_socket(address: str, port: int) -> socket.socket:
    """To that very address: nothing is resolved again."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(plain, (address, port))
    except BaseException:
        plain.close()
        raise
    return plain


def _words(error: OSError) -> str:
    """The system's own, without the addresses that loops add."""
    return os.strerror(error.errno) if error.errno else str(error) or "it was closed"


def _blocked(target: Target, why: str | None) -> NoAnswer:
    return no_answer("blocked", f"{why}" if _is_address(target.host) else f"{target.host}: {why}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _tls_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca_file:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise SettingError("broker.push.ca_file", ca_file, f"cannot be read: {error.strerror or error}") from None
    return context
