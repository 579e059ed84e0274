"""What a consumer knows of a message's journey: the dedupe marks that it made, and its last outcomes.

A mark says that the message was handled, and when; whether it was applied or was stale, only the outcomes tell, which
are in memory. A duplicate makes no mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.consumer.app import Consumer
from holdfast.consumer.documents import DocumentStore, Mark, MarkRecord
from holdfast.consumer.identity import transport_key
from holdfast.consumer.recent import RecentOutcome, RecentOutcomes
from holdfast.model.journey import Did, Event, Part, Told
from holdfast.model.outcome import Applied, Duplicate, Stale

_DID = {Applied.name: Did.APPLIED, Duplicate.name: Did.DUPLICATE, Stale.name: Did.STALE_IGNORED}

_NOT_SAID = "applied, or ignored as stale"


class ConsumerJourney:
    part = Part.CONSUMER

    def __init__(self, app: Consumer, documents: DocumentStore, recent: RecentOutcomes) -> None:
        self._collections = sorted({app.route(topic).marks for topic in app.topics})
        self._documents = documents
        self._recent = recent

    async def tell(self, message_ids: Sequence[str]) -> Told:
        wanted = {
            Mark(collection, transport_key(message_id)): message_id
            for message_id in message_ids
            for collection in self._collections
        }
        made = await self._documents.made(list(wanted))
        events = [event for message_id in message_ids for event in self._lately(message_id)]
        known = {event.message_id for event in events if event.did in (Did.APPLIED, Did.STALE_IGNORED)}
        events += [_marked(wanted[mark], mark, record) for mark, record in made.items() if wanted[mark] not in known]
        return Told(events)

    def _lately(self, message_id: str) -> Iterator[Event]:
        """A delivery that failed is told by the broker."""
        for recent in self._recent.latest(message_id):
            if did := _DID.get(recent.outcome):
                yield _outcome(recent, did)


def _outcome(recent: RecentOutcome, did: Did) -> Event:
    return Event(Part.CONSUMER, did, recent.message_id, recent.topic, recent.time_ns, detail=recent.document)


def _marked(message_id: str, mark: Mark, record: MarkRecord) -> Event:
    made = f"{_NOT_SAID}; its mark is in {mark.collection}"
    return Event(Part.CONSUMER, Did.HANDLED, message_id, mark.collection, record.created_ns or None, detail=made)
