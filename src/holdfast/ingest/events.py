"""Validated ingest: an event is published to its topic, or it is a failed message at the desk. Nothing in between.

What has a key, which is the caller's or the `eventId` of the payload, is published once and recorded once, however
often it is sent: after a crash between the publish and the answer too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.errors import (
    WRONG_SHAPE,
    BadInput,
    FailedPrecondition,
    HoldfastError,
    NotFound,
    PermissionDenied,
    StorageUnavailable,
    Unsupported,
)
from holdfast.ingest.identity import own_key, publish_id
from holdfast.ingest.manual import Ingested, Publisher
from holdfast.ingest.validation import Problem, Validation
from holdfast.model.failed_message import FailureClass, FailureStatus
from holdfast.model.failure_reasons import BROKER_UNAVAILABLE, MISCONFIGURED, UNROUTABLE
from holdfast.model.message import Message
from holdfast.model.names import check_topic, topic_path
from holdfast.model.replay_attributes import REPLAY_ID


@dataclass(frozen=True, slots=True)
class Incoming:
    """`key` is the caller's own, "" where they gave none."""

    data: bytes
    key: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not published, and is in the desk's hands as failure `failure_id`. `path` is a JSON Pointer into the
    message as the desk shows it, "" where the problem is about all of it."""

    topic: str
    problem: Problem
    failure_id: int
    status: FailureStatus
    path: str = ""
    expected: str = ""
    actual: str = ""

    @property
    def is_postponed(self) -> bool:
        """Nothing is wrong with it: the desk publishes it by itself once that is possible."""
        return (
            self.problem.failure_class is FailureClass.TRANSIENT and self.status is not FailureStatus.PERMANENT_FAILURE
        )


class RefusalDesk(Protocol):
    """PORT: the desk. Implemented by deadletter/ingest_desk.py."""

    async def refuse(self, topic: str, message: Message, key: str, problem: Problem) -> Refused:
        """Durable at return. The same once more changes nothing."""
        ...


class Ingest:
    """Short topic ids are in `project`. `key_of` is the key of a payload whose sender gives none."""

    def __init__(
        self,
        publisher: Publisher,
        validation: Validation,
        desk: RefusalDesk,
        project: str,
        key_of: Callable[[bytes], str] = own_key,
    ) -> None:
        self._publisher = publisher
        self._validation = validation
        self._desk = desk
        self._project = project
        self._key_of = key_of

    def topic_of(self, source: str) -> str:
        """Raises BadInput for what cannot be the name of any topic."""
        topic = topic_path(self._project, source)
        check_topic("source", topic)
        return topic

    async def take(self, topic: str, incoming: Incoming) -> Ingested | Refused:
        """Raises StorageUnavailable when it could neither be published nor recorded: the caller keeps it."""
        key = incoming.key or self._key_of(incoming.data)
        message = Message(incoming.data, incoming.attributes, incoming.ordering_key)
        found = await self._publish(topic, message, key)
        if isinstance(found, Ingested):
            return found
        try:
            return await self._desk.refuse(topic, message, key, found)
        except HoldfastError as error:
            raise StorageUnavailable(
                f"keep the event: it was not published ({found.reason}), and the desk could not record it: {error}"
            ) from error

    async def _publish(self, topic: str, message: Message, key: str) -> Ingested | Problem:
        try:
            problem = await self._validation.problem(topic, message)
            if problem is not None:
                return problem
            return Ingested(topic, await self._publisher.publish(topic, _once(topic, message, key)))
        except HoldfastError as error:
            return problem_of(error)


def _once(topic: str, message: Message, key: str) -> Message:
    if not key:
        return message
    replay_id = publish_id(topic, key, message.data, message.attributes, message.ordering_key)
    return replace(message, attributes={**message.attributes, REPLAY_ID: replay_id})


def problem_of(error: HoldfastError) -> Problem:
    """Of a broker that did not take it."""
    match error:
        case NotFound():
            return Problem(UNROUTABLE, str(error))
        case BadInput():
            return Problem(WRONG_SHAPE, str(error))
        case PermissionDenied() | FailedPrecondition() | Unsupported():
            return Problem(MISCONFIGURED, str(error), FailureClass.MISCONFIGURED)
        case _:
            return Problem(BROKER_UNAVAILABLE, str(error), FailureClass.TRANSIENT)
