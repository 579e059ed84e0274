"""Where the parts listen, where they are reached, and whom they may call."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from contextlib import AsyncExitStack

from holdfast.api.http import push_endpoint
from holdfast.api.http.server import listen
from holdfast.outgoing.addresses import AddressGuard
from holdfast.settings import Settings


def take_port(stack: AsyncExitStack, host: str, port: int) -> tuple[socket.socket, int]:
    """Before any file is opened: that the port is taken is known at once, and nothing has been changed then."""
    listener = listen(host, port)
    stack.callback(listener.close)
    return listener, listener.getsockname()[1]


def take_broker_ports(stack: AsyncExitStack, settings: Settings) -> list[socket.socket]:
    wanted = [settings.broker.port] + ([settings.broker.grpc_port] if settings.broker.grpc_port else [])
    return [take_port(stack, settings.broker.host, port)[0] for port in wanted]


def reachable(host: str) -> str:
    """An address of this machine that leads to who listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is about listening everywhere


def url_of(host: str, port: int) -> str:
    host = reachable(host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def push_url(settings: Settings, http_port: int) -> str:
    return f"{url_of(settings.http.host, http_port)}{push_endpoint.PATH}"


def address_guard(settings: Settings, host: str, also: Collection[tuple[str, int, str]] = ()) -> AddressGuard:
    """`host` is where this process listens: whoever can only be reached from this machine may push to it."""
    return AddressGuard.from_setting(settings.outgoing.allow, listens_on_loopback=is_loopback(host), also=also)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
