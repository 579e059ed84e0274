"""Format 4 of the desk's file: places in ordering keys that failures have given up. When they do is said in
stores/desk/places_schema.py."""

from __future__ import annotations

from holdfast.stores.desk.places_schema import FILL, INDEX, has_place, is_ended, place_of, waits

_TABLE = """
    CREATE TABLE freed_places (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        subscription  TEXT NOT NULL,
        message_id    TEXT NOT NULL
    );
"""


def _note(row: str) -> str:
    return f"""
        INSERT INTO freed_places (subscription, message_id) SELECT {row}.subscription, {place_of(row)};
    """


_TRIGGERS = f"""
    CREATE TRIGGER places_inserted AFTER INSERT ON failed_messages
        WHEN {has_place("NEW")} AND {is_ended("NEW")} BEGIN {_note("NEW")} END;
    CREATE TRIGGER places_updated AFTER UPDATE OF status ON failed_messages
        WHEN {has_place("OLD")} AND {is_ended("NEW")} AND {waits("OLD")} BEGIN {_note("OLD")} END;
    CREATE TRIGGER places_deleted AFTER DELETE ON failed_messages
        WHEN {has_place("OLD")} AND {waits("OLD")} BEGIN {_note("OLD")} END;
"""

TO_FORMAT_4 = f"{_TABLE} {INDEX}; {FILL}; {_TRIGGERS}"
