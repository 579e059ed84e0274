"""Where a request goes: a URL, checked once and taken apart, so that sending needs to look at nothing again."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from holdfast.errors import BadInput

LONGEST_URL = 2048
_LONGEST_HOST = 253

_DEFAULT_PORTS = {"http": 80, "https": 443}

# Underscores are no part of a host name, but of many a container's.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_-])?\.?")

# Nothing before or behind the brackets but a port; older urlsplits would drop it.
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\](:.*)?")

# What a request line may hold as it is. `%` is taken for an escape that is there already.
_PLAIN_IN_PATH = "!$%&'()*+,/:;=?@[]~"


@dataclass(frozen=True, slots=True)
class Target:
    """`host` is ASCII and without brackets, `path` has the query in it, `authority` is for the Host header."""

    scheme: str
    host: str
    port: int
    path: str
    authority: str


def parse_target(field: str, url: str) -> Target:
    parts = _split(field, url)
    host = _checked_host(field, parts)
    port = _checked_port(field, parts)
    path = quote(parts.path or "/", safe=_PLAIN_IN_PATH)
    if parts.query:
        path += "?" + quote(parts.query, safe=_PLAIN_IN_PATH)
    in_brackets = f"[{host}]" if ":" in host else host
    authority = in_brackets if port == _DEFAULT_PORTS[parts.scheme] else f"{in_brackets}:{port}"
    return Target(parts.scheme, host, port, path, authority)


def _split(field: str, url: str) -> SplitResult:
    if len(url) > LONGEST_URL:
        raise BadInput(field, f"the URL is longer than {LONGEST_URL} characters")
    # Before splitting: urlsplit drops some of these without a word, and others read backslashes as slashes.
    if not url.isprintable() or " " in url or "\\" in url:
        raise BadInput(field, "a URL must not hold spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadInput(field, "this is not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise BadInput(field, "the URL must start with http:// or https://")
    if "@" in parts.netloc:
        raise BadInput(field, "a URL must not carry a user or password; authenticate with an OIDC token instead")
    return parts


def _checked_host(field: str, parts: SplitResult) -> str:
    host = parts.hostname or ""
    if not host:
        raise BadInput(field, "the URL names no host")
    if "[" in parts.netloc or "]" in parts.netloc:
        return _ipv6(field, host if _IN_BRACKETS.fullmatch(parts.netloc) else "")
    try:
        host = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise BadInput(field, "the URL's host is not a valid name") from None
    if len(host) > _LONGEST_HOST or not _NAME.fullmatch(host):
        raise BadInput(field, "the URL's host is not a valid name")
    return host


def _ipv6(field: str, host: str) -> str:
    # A scope (%eth0) means something on one machine only, and Host headers have no place for it.
    try:
        return str(ipaddress.IPv6Address(host if "%" not in host else ""))
    except ValueError:
        raise BadInput(field, "the URL's host is not a valid IPv6 address") from None


def _checked_port(field: str, parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port is None:
        return _DEFAULT_PORTS[parts.scheme]
    if port == 0:
        raise BadInput(field, "the URL's port must be from 1 to 65535")
    return port
