"""Calls to a Pub/Sub over gRPC: how long they may take, and their errors as ours."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import grpc
from google.api_core import exceptions

from holdfast import errors

T = TypeVar("T")

# The clients' own retries go on for minutes; here a call fails in reasonable time and its caller decides.
CALL_SECONDS = 20.0
CALL: Mapping[str, Any] = {"retry": None, "timeout": CALL_SECONDS}

# Exactly-once delivery: an error's details say for each ack id whether it may still succeed.
ACK_IDS_FAILED = "EXACTLY_ONCE_ACKID_FAILURE"
MAY_SUCCEED = "TRANSIENT_FAILURE"


class NoAnswerInTime(errors.StorageUnavailable):
    pass


class AckIdsFailed(errors.HoldfastError):
    """Some of a call's ack ids; the others succeeded."""

    def __init__(self, why_by_ack_id: Mapping[str, str]) -> None:
        super().__init__(f"{len(why_by_ack_id)} ack ids failed")
        self.for_now = [ack_id for ack_id, why in why_by_ack_id.items() if why.startswith(MAY_SUCCEED)]
        self.for_good = [ack_id for ack_id, why in why_by_ack_id.items() if not why.startswith(MAY_SUCCEED)]


async def translated(call: Awaitable[T]) -> T:
    """gRPC's errors become ours, whether google.api_core has seen them before or not."""
    try:
        return await call
    except exceptions.GoogleAPICallError as error:
        raise _as_ours(error) from error
    except grpc.aio.AioRpcError as error:
        raise _as_ours(exceptions.from_grpc_error(error)) from error  # type: ignore[no-untyped-call]


def _as_ours(error: exceptions.GoogleAPICallError) -> errors.HoldfastError:
    """Whatever may pass by itself is StorageUnavailable."""
    if error.reason == ACK_IDS_FAILED:
        return AckIdsFailed(error.metadata or {})
    match error:
        case exceptions.DeadlineExceeded():
            return NoAnswerInTime("the broker did not answer in time")
        case exceptions.NotFound():
            return errors.NotFound(error.message)
        case exceptions.AlreadyExists():
            return errors.AlreadyExists(error.message)
        case exceptions.FailedPrecondition():
            return errors.FailedPrecondition(error.message)
        case exceptions.InvalidArgument():
            return errors.BadInput("request", error.message)
        case exceptions.Forbidden() | exceptions.Unauthorized():
            return errors.Misconfigured(error.message)
        case _:
            return errors.StorageUnavailable(f"the broker did not answer: {error.message}")
