"""Places in ordering keys that failures have given up. Triggers note them; here they are read and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.deadletter.held_places import FreedPlace
from holdfast.stores.desk.statements import Ask, Operation, portable

# Each with whether another failure, which has not ended, has the same place.
_FREED = portable("""
    SELECT p.id, p.subscription, p.message_id,
        EXISTS (
            SELECT 1 FROM failed_messages AS f
            WHERE f.message_id = p.message_id AND f.subscription = p.subscription AND f.sent_message_id = ''
                AND f.status IN ('queued_for_retry', 'permanent_failure')
        ) OR EXISTS (
            SELECT 1 FROM failed_messages AS f
            WHERE f.sent_message_id = p.message_id AND f.subscription = p.subscription
                AND f.ordering_key <> '' AND f.sent_message_id <> ''
                AND f.status IN ('queued_for_retry', 'permanent_failure')
        )
    FROM freed_places AS p WHERE p.id > :after ORDER BY p.id LIMIT :limit
""")

_FORGET = portable("DELETE FROM freed_places WHERE id IN list(:ids)")

# A dead letter of what has ended already came once more: the broker may hold its key again.
_NOTE_ENDED = portable("""
    INSERT INTO freed_places (subscription, message_id)
    SELECT subscription, message_id FROM failed_messages
    WHERE id IN list(:ids) AND ordering_key <> '' AND subscription <> '' AND status IN ('retry_success', 'replayed')
    ORDER BY id
""")


def freed_places(limit: int, after_id: int) -> Operation[Sequence[FreedPlace]]:
    rows = yield Ask(_FREED, {"limit": limit, "after": after_id})
    return [FreedPlace(place_id, name, message_id, bool(taken)) for place_id, name, message_id, taken in rows]


def forget(ids: Sequence[int]) -> Operation[None]:
    yield Ask(_FORGET, {"ids": list(ids)})


def note_ended(failure_ids: Sequence[int]) -> Operation[None]:
    yield Ask(_NOTE_ENDED, {"ids": list(failure_ids)})
