"""The head of an HTTP/1.1 request as bytes, with nothing in it that could end a line or the head."""

from __future__ import annotations

import re
from collections.abc import Mapping

import holdfast
from holdfast.errors import BadInput
from holdfast.outgoing.targets import Target

USER_AGENT = f"holdfast-push/{holdfast.__version__}"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A tab is allowed inside a value.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

# These say where a message ends and what becomes of the connection, which is for the client alone to know.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "expect"})


def request_head(method: str, target: Target, headers: Mapping[str, str]) -> bytes:
    """Without Content-Length and the empty line at the end, so that one head serves many bodies."""
    if not _TOKEN.fullmatch(method):
        raise BadInput("method", f"{method[:64]!r} is not an HTTP method")
    lines = [f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n".encode("ascii")]
    if "user-agent" not in {name.lower() for name in headers}:
        lines.append(f"User-Agent: {USER_AGENT}\r\n".encode("ascii"))
    lines.extend(_header_line(name, value) for name, value in headers.items())
    return b"".join(lines)


def may_be_header(name: str, value: str) -> bool:
    """Whether `request_head` would take it, and no line or request could end in it."""
    return bool(_TOKEN.fullmatch(name)) and name.lower() not in _OURS and not _CONTROL.search(value)


def _header_line(name: str, value: str) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise BadInput(f"header {name[:64]!r}", "a header's name must be letters, digits and !#$%&'*+-.^_`|~")
    if name.lower() in _OURS:
        raise BadInput(f"header {name}", "this header is set by Holdfast itself")
    if _CONTROL.search(value):
        raise BadInput(f"header {name}", "a header's value must not hold control characters or line ends")
    try:
        return f"{name}: {value}\r\n".encode()
    except UnicodeEncodeError:
        raise BadInput(f"header {name}", "a header's value must be valid Unicode") from None
