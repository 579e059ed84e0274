"""Payloads that people put in by hand: corrected ones of failed messages, and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import BadInput
from holdfast.model.message import Message
from holdfast.model.names import check_topic, topic_path
from holdfast.model.strict_json import parse_strict_json

# Cloud Pub/Sub's, of a message.
LARGEST_PAYLOAD_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Person:
    """Who does it, and the token by which they may see what is redacted, if they show one."""

    actor: str
    reveal_token: str | None = None


@dataclass(frozen=True, slots=True)
class Ingested:
    topic: str
    message_id: str


class Publisher(Protocol):
    """PORT: the broker. Implemented by the transports."""

    async def publish(self, topic: str, message: Message) -> str: ...


class Schemas(Protocol):
    """PORT: the broker's schemas. Implemented by the transports (transports/schemas.py)."""

    async def problem(self, topic: str, data: bytes) -> str | None:
        """What is wrong with the data as a message of this topic: "" when it fits, None when the topic has no schema.
        Raises NotFound when there is no such topic."""
        ...


class FailureDesk(Protocol):
    """PORT: the desk. Implemented by deadletter/manual_replay.py."""

    async def replay(self, failure_id: int, topic: str, data: bytes, person: Person) -> str:
        """Sends the failed message again with this payload, to the subscription that it failed at, and marks it as
        replayed. Gives the id of what was sent."""
        ...

    async def published(self, topic: str, message_id: str, person: Person) -> None:
        """Somebody has put in a payload that is of no failed message."""
        ...


class ManualIngest:
    """Short topic ids are in `project`."""

    def __init__(self, publisher: Publisher, schemas: Schemas, desk: FailureDesk, project: str) -> None:
        self._publisher = publisher
        self._schemas = schemas
        self._desk = desk
        self._project = project

    async def ingest(
        self, source: str, data: bytes, person: Person, *, is_json: bool, failure_id: int | None = None
    ) -> Ingested:
        """`source` is a topic. Raises BadInput for a payload that its schema does not take."""
        topic = topic_path(self._project, source)
        check_topic("source", topic)
        await self._check(topic, data, is_json)
        if failure_id is not None:
            return Ingested(topic, await self._desk.replay(failure_id, topic, data, person))
        message_id = await self._publisher.publish(topic, Message(data))
        await self._desk.published(topic, message_id, person)
        return Ingested(topic, message_id)

    async def _check(self, topic: str, data: bytes, is_json: bool) -> None:
        if not data:
            raise BadInput("body", "is empty: it must be the payload")
        if len(data) > LARGEST_PAYLOAD_BYTES:
            raise BadInput("body", f"has {len(data)} bytes; at most {LARGEST_PAYLOAD_BYTES} are allowed")
        if is_json:
            _check_json(data)
        if problem := await self._schemas.problem(topic, data):
            raise BadInput("body", problem)


def _check_json(data: bytes) -> None:
    try:
        parse_strict_json(data, any_number=True)
    except ValueError as error:
        raise BadInput("body", str(error)) from error
