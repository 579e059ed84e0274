"""The message that is sent again for a failure: by automatic retries and by replays alike, so that a broker which takes
each REPLAY_ID once sends it once, whoever was first."""

from __future__ import annotations

from typing import Self

from holdfast.deadletter.dead_letter import without_our_attributes
from holdfast.deadletter.failures import FailureStore
from holdfast.deadletter.lineage import Lineage, LineageSigner
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.ingest.identity import publish_id
from holdfast.model import replay_attributes
from holdfast.model.dead_letter_attributes import LONGEST_VALUE
from holdfast.model.failed_message import Content, FailedMessage
from holdfast.model.message import Message
from holdfast.model.timestamps import format_rfc3339

# Pub/Sub's limit.
MOST_ATTRIBUTES = 100


class Sending:
    """Of one desk. `lineages` reads what `message_for` has written. `retrying` are the failures whose retry is being
    sent just now: an edit would not be in it any more, and whoever sent that would send the message twice."""

    def __init__(self, store: DeskStore, lineages: LineageSigner) -> None:
        self._store = store
        self.lineages = lineages
        self.retrying: set[int] = set()

    @classmethod
    async def of(cls, store: DeskStore) -> Self:
        return cls(store, LineageSigner(await store.store_id(), await store.secret()))

    async def message_for(self, failure: FailedMessage) -> Message:
        """With its newest content. Raises BadInput for what Pub/Sub would not take."""
        content = await self.content_of(failure, failure.revision)
        return message_for(failure, content, self.replay_id(failure))

    def replay_id(self, failure: FailedMessage) -> str:
        """Of its next sending: the same until a retry of it was marked as sent, or until it is edited. What ingest
        could not publish keeps the id that it came with, so that neither the desk nor its sender publishes it twice."""
        if failure.is_of_ingest and not failure.revision:
            return publish_id(
                failure.source_topic, failure.message_id, failure.data, failure.attributes, failure.ordering_key
            )
        return self.lineages.replay_id(Lineage(failure.id, failure.retry_count + 1, failure.revision))

    async def content_of(self, failure: FailedMessage, revision: int) -> Content:
        return await content_of(self._store, failure, revision)


async def content_of(store: FailureStore, failure: FailedMessage, revision: int) -> Content:
    """What this revision says; 0 is the original."""
    if revision == 0:
        return failure.content
    for found in await store.revisions(failure.id):
        if found.number == revision:
            return found.content
    raise BadInput("revision", f"failure {failure.id} has no revision {revision}")


def message_for(failure: FailedMessage, content: Content, replay_id: str) -> Message:
    attributes = without_our_attributes(content.attributes)
    if len(attributes) >= MOST_ATTRIBUTES:
        # Sent without its lineage it could come twice, and fail and come back for ever.
        raise BadInput(
            "attributes", f"{len(attributes)} leave no room for ours; a message has {MOST_ATTRIBUTES} at most"
        )
    attributes[replay_attributes.REPLAY_ID] = replay_id
    for name, value in _about(failure, content).items():
        if value and len(value.encode()) <= LONGEST_VALUE and len(attributes) < MOST_ATTRIBUTES:
            attributes[name] = value
    return Message(content.data, attributes, content.ordering_key)


def _about(failure: FailedMessage, content: Content) -> dict[str, str]:
    """What it can do without; the more useful first."""
    # The key may be held at the message that was dead-lettered last: a retry of it, if there was one.
    has_place = content.ordering_key and not failure.is_of_ingest
    return {
        replay_attributes.IN_PLACE_OF: (failure.sent_message_id or failure.message_id) if has_place else "",
        replay_attributes.ORIGINAL_PUBLISH_TIME: format_rfc3339(failure.first_seen_ns) if failure.first_seen_ns else "",
        replay_attributes.ORIGINAL_MESSAGE_ID: failure.message_id,
    }
