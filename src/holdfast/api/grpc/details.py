"""The machine-readable part of an error, as Google's APIs send it beside the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.rpc import error_details_pb2

from holdfast.errors import BadInput, StaleAckIds

DOMAIN = "pubsub.googleapis.com"

# Official clients look for this value to learn that an ack will never succeed.
STALE_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"

_pb: Any = error_details_pb2


def error_details(error: Exception) -> Sequence[Any]:
    if isinstance(error, StaleAckIds):
        metadata = dict.fromkeys(error.ack_ids, STALE_ACK_ID)
        return [_pb.ErrorInfo(reason="EXACTLY_ONCE_ACKID_FAILURE", domain=DOMAIN, metadata=metadata)]
    if isinstance(error, BadInput):
        violation = _pb.BadRequest.FieldViolation(field=error.field, description=error.why)
        return [_pb.BadRequest(field_violations=[violation])]
    return []
