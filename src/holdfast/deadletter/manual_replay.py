"""A failed message that a person sends again with a corrected payload, to the subscription that it failed at and to no
other; what ingest refused goes to its topic. This is the desk's end of ingest/manual.py."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC
from holdfast.deadletter.edits.changes import Parts
from holdfast.deadletter.edits.document import raw_payload
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.sight import Sight
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput, Conflict, FailedPrecondition
from holdfast.ingest.manual import Person
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Message
from holdfast.model.names import short_id

# Somebody else changes the row at the same moment; more often than this it is not chance.
TRIES = 10


class ManualReplay:
    """`most_generations`: what was sent again so often is not sent once more."""

    def __init__(
        self,
        store: DeskStore,
        clock: Clock,
        editing: Editing,
        sending: Sending,
        outlet: Outlet,
        sight: Sight,
        most_generations: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._editing = editing
        self._sending = sending
        self._outlet = outlet
        self._sight = sight
        self._most_generations = most_generations

    async def replay(self, failure_id: int, topic: str, data: bytes, person: Person) -> str:
        """Sent twice by a crash or a second try, it carries the same REPLAY_ID, and our broker takes it once."""
        failure = await self._editing.failure(failure_id)
        self._check(failure, topic)
        failure = await self._with_payload(failure, data, person)
        message = await self._sending.message_for(failure)
        message_id = await self._send(failure, message)
        await self._mark(failure, message_id, person)
        return message_id

    async def published(self, topic: str, message_id: str, person: Person) -> None:
        action = Action(person.actor, "ingest.manual", topic, {"messageId": message_id}, self._clock.now_ns())
        await self._store.append(action)

    async def _send(self, failure: FailedMessage, message: Message) -> str:
        if failure.is_of_ingest:
            return await self._outlet.publish(failure.source_topic, message)
        return (await self._outlet.publish_to(failure.subscription, [message]))[0]

    def _check(self, failure: FailedMessage, topic: str) -> None:
        if failure.source_topic not in (topic, UNKNOWN_TOPIC):
            raise BadInput("failure", f"{failure.id} came from {short_id(failure.source_topic)}, not {short_id(topic)}")
        failure.mark_replayed(0)  # raises when there is nothing left to send
        if failure.id in self._sending.retrying:
            raise FailedPrecondition(f"a retry of failed message {failure.id} is being sent: look at it again")
        if failure.is_out:
            raise FailedPrecondition(f"failed message {failure.id} is out already: wait for its end")
        if failure.generation >= self._most_generations:
            raise FailedPrecondition(
                f"failed message {failure.id} was sent again {failure.generation} times and failed each time"
            )

    async def _with_payload(self, failure: FailedMessage, data: bytes, person: Person) -> FailedMessage:
        if data == (await self._editing.newest(failure)).data:
            return failure
        redaction = await self._sight.of(person.reveal_token, person.actor, f"failures/{failure.id}")
        edited = await self._editing.edit(
            failure.id,
            Parts(raw_payload(data)),
            redaction,
            actor=person.actor,
            comment="replayed by hand",
            version=failure.version,
        )
        return edited.failure

    async def _mark(self, failure: FailedMessage, message_id: str, person: Person) -> None:
        """It is out: whatever else changes on the row, such as its hold, it must not be sent once more."""
        details = {"by": "hand", "messageId": message_id, "revision": failure.revision}
        action = Action(person.actor, "failure.replay", f"failures/{failure.id}", details, self._clock.now_ns())
        for _ in range(TRIES):
            (kept,) = await self._store.save([failure.mark_replayed(action.at_ns, message_id=message_id)], action)
            if kept:
                return
            failure = await self._editing.failure(failure.id)
        raise Conflict(f"failure {failure.id} was sent as {message_id}, and others keep changing its row: try again")
