"""What the routes that change something read from a request: its body, who asks, and which version is meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from starlette.requests import Request

from holdfast.errors import BadInput
from holdfast.model.strict_json import parse_strict_json

# An edit carries a whole message, which may have 10 MB, in base64.
LARGEST_BODY_BYTES = 16 * 1024 * 1024

DEFAULT_ACTOR = "api"
LONGEST_ACTOR = 200


Parse = Callable[[bytes], Any]


async def json_object(request: Request, known: Collection[str], parse: Parse = parse_strict_json) -> dict[str, Any]:
    """The body, {} when there is none. Raises BadInput that names what is not known."""
    raw = await body(request)
    if not raw:
        return {}
    _check_content_type(request)
    try:
        value = parse(raw)
    except ValueError as error:
        raise BadInput("body", str(error)) from error
    if not isinstance(value, dict):
        raise BadInput("body", "must be a JSON object")
    for name in value:
        if name not in known:
            raise BadInput(name[:64], f"is not known here; the body may have {', '.join(sorted(known))}")
    return value


async def body(request: Request, largest: int = LARGEST_BODY_BYTES) -> bytes:
    """Refused as soon as it is too large, not after it was read."""
    check_origin(request)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > largest:
            raise BadInput("body", f"must not be larger than {largest} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def check_origin(request: Request) -> None:
    """A browser names the site whose page sends this. Only our own pages may change something."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise BadInput("Origin", f"pages of other sites may not do this: {origin[:64]!r}")


def _check_content_type(request: Request) -> None:
    """Text or a form would be misread, and is what a page can send anywhere without asking."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise BadInput("Content-Type", f"must be application/json, not {given[:64]!r}")


def string(given: Mapping[str, Any], name: str, longest: int, *, default: str | None = None) -> str:
    """Required where there is no default, and then not empty."""
    value = given.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise BadInput(name, "must be a text" if default is not None else "must be a text that is not empty")
    if len(value) > longest or "\0" in value:
        raise BadInput(name, f"must not be longer than {longest} characters, nor have NUL in it")
    return value


def actor_of(request: Request) -> str:
    """As it says itself: who may talk to the desk at all is settled before. Headers are bytes; names are UTF-8."""
    raw = request.headers.get("holdfast-actor", DEFAULT_ACTOR).strip().encode("latin-1")
    given = raw.decode(errors="replace")
    if not 1 <= len(given) <= LONGEST_ACTOR or not given.isprintable():
        raise BadInput("Holdfast-Actor", f"must be 1 to {LONGEST_ACTOR} printable characters")
    return given


def expected_version(request: Request, given: Mapping[str, Any]) -> int | None:
    """`version` of the body, else If-Match, in quotes or not; None where neither is there."""
    value = given.get("version")
    if value is None and "if-match" in request.headers:
        tag = request.headers["if-match"].strip().removeprefix("W/").strip('"')
        value = int(tag) if tag.isascii() and tag.isdecimal() and len(tag) <= 18 else tag
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # JSON knows no difference
        value = int(value)
    if type(value) is not int or not 1 <= value < 2**63:
        raise BadInput("version", f"must be a whole number above 0, not {str(value)[:64]!r}")
    return value


def query(request: Request, known: Collection[str], repeated: Collection[str] = ()) -> dict[str, Any]:
    """The parameters, lists for those that may be `repeated`. What is not known, or given twice, is refused: it would
    otherwise look as if it had been heeded."""
    found: dict[str, Any] = {name: [] for name in repeated}
    for name, value in request.query_params.multi_items():
        if name in repeated:
            found[name].append(value)
        elif name not in known:
            raise BadInput(name[:64], f"is not known here; a query may have {', '.join(sorted({*known, *repeated}))}")
        elif name in found:
            raise BadInput(name, "is given twice")
        else:
            found[name] = value
    return found
