"""Events as a request brings them: one, an array of them, or a line each; and the answer to them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    JSON,
    Answer,
    Body,
    Operation,
    Parameter,
    anything,
    integer,
    list_of,
    one_of,
    or_null,
    record,
    text,
)
from holdfast.api.http.errors import error_body, error_content
from holdfast.api.http.requests import body, query
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.ingest.events import Incoming, Ingest, Refused
from holdfast.ingest.identity import LONGEST_KEY
from holdfast.ingest.manual import Ingested
from holdfast.model.exact_json import dump_exact_json, parse_exact_json
from holdfast.model.failed_message import FailureStatus
from holdfast.model.failure_reasons import DECODE_ERROR, MESSAGE_TOO_LARGE, MISCONFIGURED, UNROUTABLE

NDJSON = "application/x-ndjson"
_LINES = (NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines")

MOST_EVENTS = 1000

# Published at once, where no order has to be kept.
AT_ONCE = 50

# The status of a single event that was refused, and its name as Google's APIs have it. Any other reason is a 422.
_STATUS: Mapping[str, tuple[int, str]] = {
    DECODE_ERROR: (400, "INVALID_ARGUMENT"),
    UNROUTABLE: (404, "NOT_FOUND"),
    MESSAGE_TOO_LARGE: (413, "INVALID_ARGUMENT"),
    MISCONFIGURED: (500, "FAILED_PRECONDITION"),
}
_WRONG = (422, "INVALID_ARGUMENT")


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Neither published nor recorded: the caller keeps it."""

    error: StorageUnavailable


Taken = Ingested | Refused | NotTaken


@dataclass(frozen=True, slots=True)
class Received:
    events: Sequence[Incoming]
    is_batch: bool

    async def take_all(self, ingest: Ingest, topic: str) -> list[Taken]:
        """Those with an ordering key one after the other."""
        step = 1 if self.events and self.events[0].ordering_key else AT_ONCE
        taken: list[Taken] = []
        for first in range(0, len(self.events), step):
            some = self.events[first : first + step]
            taken += await asyncio.gather(*(_take(ingest, topic, event) for event in some))
        return taken


async def _take(ingest: Ingest, topic: str, event: Incoming) -> Taken:
    try:
        return await ingest.take(topic, event)
    except StorageUnavailable as error:
        return NotTaken(error)


async def received(request: Request) -> Received:
    given = query(request, ("orderingKey",), ("attribute",))
    ordering_key, attributes = str(given.get("orderingKey", "")), _attributes(given["attribute"])
    key = _idempotency_key(request)
    payloads, is_batch = _payloads(await body(request), _content_type(request))
    if len(payloads) > MOST_EVENTS:
        raise BadInput("body", f"has {len(payloads)} events; at most {MOST_EVENTS} are allowed, and none was taken")
    events = [
        Incoming(payload, f"{key}/{number}" if key and is_batch else key, attributes, ordering_key)
        for number, payload in enumerate(payloads)
    ]
    return Received(events, is_batch)


def _payloads(data: bytes, content_type: str) -> tuple[list[bytes], bool]:
    """And whether it is a batch. What is not JSON is an event too: one that will be refused."""
    if content_type in _LINES:
        lines = (line.strip() for line in data.split(b"\n"))
        return [line for line in lines if line], True
    if not data:
        raise BadInput("body", "is empty: it must be an event")
    if data.lstrip()[:1] != b"[":
        return [data], False
    try:
        events = parse_exact_json(data)
    except ValueError:
        return [data], False
    return [dump_exact_json(event).encode() for event in events], True


def _content_type(request: Request) -> str:
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind not in (JSON, *_LINES) and not kind.endswith("+json"):
        raise BadInput("Content-Type", f"must be {JSON} or {NDJSON}, not {given[:64]!r}")
    return kind


def _attributes(pairs: Sequence[str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon or not name or name in attributes:
            raise BadInput("attribute", f"must look like NAME:VALUE, each name once, not {pair[:64]!r}")
        attributes[name] = value
    return attributes


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "").strip()
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise BadInput("Idempotency-Key", f"must be at most {LONGEST_KEY} printable characters")
    return key


# The answer.


def too_fast(seconds: float) -> Response:
    """Recording what comes too fast would only move the flood. The caller has it still, and is told when."""
    wait = {"Retry-After": str(math.ceil(seconds))}
    return error_body(429, "RESOURCE_EXHAUSTED", "more events in a second than ingest.per_second; none was taken", wait)


def answer_of(taken: Sequence[Taken], *, is_batch: bool) -> Response:
    if not is_batch:
        (one,) = taken
        status, told = _told(one)
        return JSONResponse(told, status_code=status)
    results = [_told(one) for one in taken]
    counts = {
        "published": sum(status == 200 for status, _ in results),
        "postponed": sum(status == 202 for status, _ in results),
        "refused": sum(isinstance(one, Refused) and not one.is_postponed for one in taken),
        "notTaken": sum(isinstance(one, NotTaken) for one in taken),
    }
    is_good = counts["published"] == len(results)
    return JSONResponse({**counts, "results": [told for _, told in results]}, status_code=200 if is_good else 207)


def _told(one: Taken) -> tuple[int, dict[str, Any]]:
    if isinstance(one, Ingested):
        return 200, {"topic": one.topic, "messageId": one.message_id, "failure": None}
    if isinstance(one, NotTaken):
        return 503, {"messageId": None, "failure": None, **error_content(one.error)}
    told: dict[str, Any] = {
        "topic": one.topic,
        "messageId": None,
        "failure": one.failure_id,
        "failureStatus": str(one.status),
        "reason": one.problem.reason,
        "complaint": {"path": one.path, "expected": one.expected, "actual": one.actual},
    }
    if one.is_postponed:
        return 202, told
    code, status = _STATUS.get(one.problem.reason, _WRONG)
    return code, {"error": {"code": code, "message": one.problem.error, "status": status}, **told}


# What it says of itself.

_COMPLAINT = record(
    {
        "path": text("JSON Pointer into the message as the desk shows it; empty where it is about all of it"),
        "expected": text("Or what is wrong, where nobody told what was expected"),
        "actual": text(),
    },
    title="IngestComplaint",
)

_RESULT = record(
    {
        "topic": text("Full path"),
        "messageId": or_null(text("Of what was published")),
        "failure": or_null(integer("The failed message at the desk, where it was not published")),
        "failureStatus": one_of([*FailureStatus]),
        "reason": text("Such as SCHEMA_VALIDATION_ERROR"),
        "complaint": _COMPLAINT,
        "error": record({"code": integer(), "message": text(), "status": text()}),
    },
    optional=("topic", "failureStatus", "reason", "complaint", "error"),
    title="IngestResult",
)

_BATCH = record(
    {
        "published": integer(),
        "postponed": integer("The desk publishes them by itself"),
        "refused": integer("They are failed messages at the desk"),
        "notTaken": integer("Neither published nor recorded: send them again"),
        "results": list_of(_RESULT, "In the order of the events"),
    },
    title="IngestBatch",
)

_EITHER = {"oneOf": [_RESULT, _BATCH]}

EVENTS = Operation(
    "Publish events that are valid",
    "One JSON event, an array of them, or with `application/x-ndjson` a line each. An event must fit the topic's "
    "schema and, in `holdfast up`, what the topic's handler wants. What is not published is a failed message at the "
    "desk, and the answer names it. With an `Idempotency-Key`, or an `eventId` in the payload, sending it again "
    "changes nothing. 503: it is neither published nor recorded; send it again.",
    tag="ingest",
    parameters=(
        Parameter("source", "A topic: its id", where="path", required=True, example="market-ticks"),
        Parameter("orderingKey", "Events of one request with a key keep their order"),
        Parameter("attribute", "As NAME:VALUE", text(pattern="^[^:]+:"), repeats=True),
        Parameter("Idempotency-Key", "The same key and the same event are one", where="header", example="tick-17"),
    ),
    body=Body(anything("An event, or an array of them"), {"eventId": "tick-17", "symbol": "ABC", "price": 1.1}),
    answer=Answer(_EITHER, "Published; of a batch, every event"),
    also=(
        Answer(_RESULT, "The broker could not take it: the desk publishes it by itself", status=202),
        Answer(_BATCH, "Not every event of the batch was published", status=207),
    ),
    errors=(400, 404, 413, 422, 429),
)
