"""When a failure gives up its place in its ordering key, in SQL of either database.

The place is that of the message which was dead-lettered last: of a retry, where there was one. What is out on a retry
at its end has none to give up: that message is under way.
"""

from __future__ import annotations

from holdfast.stores.desk.totals_schema import MENDED

INDEX = """
    CREATE INDEX idx_failed_messages_sent ON failed_messages (sent_message_id)
        WHERE ordering_key <> '' AND sent_message_id <> ''
"""


def place_of(row: str) -> str:
    return f"CASE WHEN {row}.sent_message_id <> '' THEN {row}.sent_message_id ELSE {row}.message_id END"


def has_place(row: str) -> str:
    return f"{row}.ordering_key <> '' AND {row}.subscription <> ''"


def is_ended(row: str) -> str:
    return f"{row}.status IN {MENDED}"


def waits(row: str) -> str:
    """For its next sending."""
    return f"NOT {is_ended(row)} AND NOT ({row}.status = 'queued_for_retry' AND {row}.sent_at IS NOT NULL)"


# Of what has ended before anybody noted it.
FILL = f"""
    INSERT INTO freed_places (subscription, message_id)
    SELECT f.subscription, f.message_id FROM failed_messages AS f
    WHERE {has_place("f")} AND {is_ended("f")} ORDER BY f.id
"""  # noqa: S608 - parts of a constant
