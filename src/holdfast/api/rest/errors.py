"""What went wrong, as Google's REST APIs tell it: an HTTP code and {"error": {code, message, status, details}}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from holdfast import errors
from holdfast.api.grpc.details import error_details
from holdfast.api.rest.answer import Answer, json_answer


class BodyTooLarge(errors.BadInput):
    def __init__(self, why: str) -> None:
        super().__init__("body", why)


_STATUS: Mapping[type[Exception], str] = {
    errors.BadInput: "INVALID_ARGUMENT",
    errors.FailedPrecondition: "FAILED_PRECONDITION",
    errors.NotFound: "NOT_FOUND",
    errors.AlreadyExists: "ALREADY_EXISTS",
    errors.Unsupported: "UNIMPLEMENTED",
    errors.StorageUnavailable: "UNAVAILABLE",
    TimeoutError: "DEADLINE_EXCEEDED",
}

_HTTP_CODE = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def error_answer(error: Exception) -> Answer | None:
    """None for an error that nobody foresaw: its text may hold what a caller should not see."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            code = 413 if isinstance(error, BodyTooLarge) else _HTTP_CODE[status]
            return _answer(code, status, str(error) or "it took too long", error_details(error))
    return None


def internal_error() -> Answer:
    return _answer(500, "INTERNAL", "unexpected error; the broker's log has the details", [])


def _answer(code: int, status: str, message: str, details: Sequence[Any]) -> Answer:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    if details:
        error["details"] = [_typed(detail) for detail in details]
    return json_answer({"error": error}, code)


def _typed(detail: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/{detail.DESCRIPTOR.full_name}", **json_format.MessageToDict(detail)}
