"""Whether an event may go to its topic: JSON, not too large, and as the topic's schema and its handler want it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import WRONG_SHAPE, NotFound
from holdfast.ingest.manual import LARGEST_PAYLOAD_BYTES, Schemas
from holdfast.model.failed_message import FailureClass
from holdfast.model.failure_reasons import DECODE_ERROR, MESSAGE_TOO_LARGE, UNROUTABLE
from holdfast.model.message import Message
from holdfast.model.strict_json import parse_strict_json


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an event is not published. `reason` is the category that the desk groups by."""

    reason: str
    error: str
    failure_class: FailureClass = FailureClass.POISON


class Rules(Protocol):
    """PORT: what the consumer of this process wants of a topic's events. Implemented by deadletter/rehearsing.py."""

    async def problem(self, topic: str, message: Message) -> Problem | None:
        """None also where nobody here knows."""
        ...


class Validation:
    """Where no consumer runs in this process, there are no `rules`."""

    def __init__(self, schemas: Schemas, rules: Rules | None = None) -> None:
        self._schemas = schemas
        self._rules = rules

    async def problem(self, topic: str, message: Message) -> Problem | None:
        """Raises when the broker cannot be asked."""
        if len(message.data) > LARGEST_PAYLOAD_BYTES:
            why = f"the payload has {len(message.data)} bytes; at most {LARGEST_PAYLOAD_BYTES} are allowed"
            return Problem(MESSAGE_TOO_LARGE, why)
        try:
            parse_strict_json(message.data, any_number=True)
        except ValueError as error:
            return Problem(DECODE_ERROR, f"the payload {error}")
        try:
            told = await self._schemas.problem(topic, message.data)
        except NotFound as error:
            return Problem(UNROUTABLE, str(error))
        if told:
            return Problem(WRONG_SHAPE, told)
        return await self._rules.problem(topic, message) if self._rules else None
