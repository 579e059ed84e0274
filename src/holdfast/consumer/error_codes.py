"""The code that an exception, or what caused it, carries: a gRPC or HTTP status, an SQLSTATE, an errno."""

from __future__ import annotations

import errno
from enum import Enum

# Where libraries keep it, the most telling first. `reason` and `grpc_status_code` are enums.
_ATTRIBUTES = ("grpc_status_code", "sqlstate", "sqlite_errorname", "status_code", "status", "code")

# An error that explains another which explains another …: no further than anyone would read.
_DEEPEST = 5


def error_code(error: BaseException) -> str:
    """ "" where none is found."""
    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if seen is None:
            break
        found = _code_of(seen)
        if found:
            return found
        seen = seen.__cause__ or seen.__context__
    return ""


def _code_of(error: BaseException) -> str:
    for name in _ATTRIBUTES:
        value = _attribute(error, name)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)[:50]
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, str(error.errno))
    return ""


def _attribute(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a property of somebody else's, which fails when it is read
        return None
