"""Formats 3 and 5 of the desk's schema: places in ordering keys that failures have given up. When they do is said in
stores/desk/places_schema.py. A statement that changes many rows notes all of their places at once."""

from __future__ import annotations

from holdfast.stores.desk.places_schema import FILL, INDEX, has_place, is_ended, place_of, waits

_TABLE = """
CREATE TABLE freed_places (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription  TEXT COLLATE "C" NOT NULL,
    message_id    TEXT COLLATE "C" NOT NULL
)
"""

_NOTING = """
CREATE FUNCTION place_<event>() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    INSERT INTO freed_places (subscription, message_id)
    SELECT <row>.subscription, <place> FROM <rows> ORDER BY <row>.id;
    RETURN NULL;
END $body$;
CREATE TRIGGER place_<event> AFTER <event> ON failed_messages REFERENCING <tables>
    FOR EACH STATEMENT EXECUTE FUNCTION place_<event>()
"""


def _noting(event: str, tables: str, row: str, rows: str) -> str:
    parts = {"event": event, "tables": tables, "rows": rows, "row": row, "place": place_of(row)}
    text = _NOTING
    for name, part in parts.items():
        text = text.replace(f"<{name}>", part)
    return text


_OLD, _NEW = "OLD TABLE AS old_rows", "NEW TABLE AS new_rows"

TO_FORMAT_3 = ";\n".join(
    (
        _TABLE,
        INDEX,
        _noting("insert", _NEW, "n", f"new_rows AS n WHERE {has_place('n')} AND {is_ended('n')}"),
        _noting(
            "update",
            f"{_NEW} {_OLD}",
            "o",
            f"old_rows AS o JOIN new_rows AS n USING (id) WHERE {has_place('o')} AND {is_ended('n')} AND {waits('o')}",
        ),
        _noting("delete", _OLD, "o", f"old_rows AS o WHERE {has_place('o')} AND {waits('o')}"),
        FILL,
    )
)

# TRUNCATE fires no trigger of DELETE, and has no table of what was there: before it the rows are there still.
TO_FORMAT_5 = f"""
CREATE FUNCTION place_truncate() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    INSERT INTO freed_places (subscription, message_id)
    SELECT f.subscription, {place_of("f")} FROM failed_messages AS f
    WHERE {has_place("f")} AND {waits("f")} ORDER BY f.id;
    RETURN NULL;
END $body$;
CREATE TRIGGER place_truncate BEFORE TRUNCATE ON failed_messages
    FOR EACH STATEMENT EXECUTE FUNCTION place_truncate()
"""  # noqa: S608 - parts of a constant
