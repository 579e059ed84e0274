"""How a call ended, as gRPC tells it: a code, a text, and details that programs can read. Knows nothing of grpcio."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from google.rpc import status_pb2

from holdfast import errors
from holdfast.api.grpc.details import error_details

log = logging.getLogger("holdfast.broker")


class Code(IntEnum):
    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


@dataclass(frozen=True, slots=True)
class Status:
    code: Code
    message: str
    # A serialized google.rpc.Status, or nothing.
    details: bytes = b""


_CODES: Mapping[type[errors.HoldfastError], Code] = {
    errors.BadInput: Code.INVALID_ARGUMENT,
    errors.NotFound: Code.NOT_FOUND,
    errors.AlreadyExists: Code.ALREADY_EXISTS,
    errors.FailedPrecondition: Code.FAILED_PRECONDITION,
    errors.Unsupported: Code.UNIMPLEMENTED,
    errors.StorageUnavailable: Code.UNAVAILABLE,
}


def status_of(error: Exception, method: str) -> Status:
    """An error that nobody foresaw goes to the log: its text may hold what a caller should not see."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if code is None:
        log.error("unexpected error", exc_info=error, extra={"fields": {"method": method}})
        return Status(Code.INTERNAL, "unexpected error; the broker's log has the details")
    return Status(code, str(error), _packed(code, error))


def _packed(code: Code, error: Exception) -> bytes:
    details = error_details(error)
    if not details:
        return b""
    status = status_pb2.Status(code=code, message=str(error))
    for detail in details:
        status.details.add().Pack(detail)
    packed: bytes = status.SerializeToString()
    return packed
