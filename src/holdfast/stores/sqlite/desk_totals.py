"""Format 3 of the desk's file: totals for metrics, kept by triggers. What they are is said in
stores/desk/totals_schema.py."""

from __future__ import annotations

from holdfast.stores.desk.totals_schema import (
    CLOSED_STATES,
    FILL,
    INDEX_JOBS,
    MENDED,
    MOST_REASONS,
    MOST_SUBSCRIPTIONS,
    OTHER,
    is_open,
)

_TABLE = """
    CREATE TABLE failure_totals (
        what   TEXT NOT NULL,
        name   TEXT NOT NULL,
        count  INTEGER NOT NULL,
        PRIMARY KEY (what, name)
    ) WITHOUT ROWID;
"""


def _add(what: str, name: str, number: str = "1", *, where: str = "true") -> str:
    return f"""
        INSERT INTO failure_totals (what, name, count) SELECT '{what}', {name}, {number} WHERE {where}
        ON CONFLICT (what, name) DO UPDATE SET count = count + excluded.count;"""


def _bounded(what: str, name: str, most: int) -> str:
    """`name` while there is room for it, and for good if it ever had one."""
    return f"""CASE WHEN EXISTS (SELECT 1 FROM failure_totals WHERE what = '{what}' AND name = {name})
            OR (SELECT count(*) FROM failure_totals WHERE what = '{what}') < {most} THEN {name} ELSE '{OTHER}' END"""


def _open(row: str, number: str, where: str) -> str:
    return _add("open", _bounded("open", f"{row}.subscription", MOST_SUBSCRIPTIONS), number, where=where)


# What acknowledging a group takes out of the open failures, and reopening it puts back.
_PERMANENT_OF = """(SELECT coalesce(sum(count), 0) FROM failure_group_counts
            WHERE fingerprint = {row}.fingerprint AND status = 'permanent_failure')"""

_BECAME_PERMANENT = "NEW.status = 'permanent_failure'"
_BECAME_OTHER = "NEW.status <> OLD.status"

_TRIGGERS = f"""
    CREATE TRIGGER totals_inserted AFTER INSERT ON failed_messages BEGIN
        {_add("status", "NEW.status")}
        {_add("reason", _bounded("reason", "NEW.failure_reason", MOST_REASONS))}
        {_add("recorded", _bounded("recorded", "NEW.subscription", MOST_SUBSCRIPTIONS))}
        {_add("permanent", "''", where=_BECAME_PERMANENT)}
        {_open("NEW", "1", is_open("NEW"))}
    END;
    CREATE TRIGGER totals_updated AFTER UPDATE OF status, fingerprint, subscription ON failed_messages
        WHEN (NEW.status, NEW.fingerprint, NEW.subscription) <> (OLD.status, OLD.fingerprint, OLD.subscription) BEGIN
        {_add("status", "OLD.status", "-1")}
        {_add("status", "NEW.status")}
        {_add("permanent", "''", where=f"{_BECAME_PERMANENT} AND {_BECAME_OTHER}")}
        {
    _add(
        "settled",
        _bounded("settled", "NEW.subscription", MOST_SUBSCRIPTIONS),
        where=f"NEW.status IN {MENDED} AND OLD.status NOT IN {MENDED}",
    )
}
        {_open("OLD", "-1", is_open("OLD"))}
        {_open("NEW", "1", is_open("NEW"))}
    END;
    CREATE TRIGGER totals_deleted AFTER DELETE ON failed_messages BEGIN
        {_add("status", "OLD.status", "-1")}
        {_open("OLD", "-1", is_open("OLD"))}
    END;
    CREATE TRIGGER groups_inserted AFTER INSERT ON failure_groups BEGIN
        {_add("group", "NEW.state")}
        {_open("NEW", "-" + _PERMANENT_OF.format(row="NEW"), f"NEW.state IN {CLOSED_STATES}")}
    END;
    CREATE TRIGGER groups_updated AFTER UPDATE OF state ON failure_groups WHEN NEW.state <> OLD.state BEGIN
        {_add("group", "OLD.state", "-1")}
        {_add("group", "NEW.state")}
        {_open("OLD", _PERMANENT_OF.format(row="OLD"), f"OLD.state IN {CLOSED_STATES}")}
        {_open("NEW", "-" + _PERMANENT_OF.format(row="NEW"), f"NEW.state IN {CLOSED_STATES}")}
    END;
    CREATE TRIGGER groups_deleted AFTER DELETE ON failure_groups BEGIN
        {_add("group", "OLD.state", "-1")}
        {_open("OLD", _PERMANENT_OF.format(row="OLD"), f"OLD.state IN {CLOSED_STATES}")}
    END;
"""

TO_FORMAT_3 = f"{_TABLE} {INDEX_JOBS}; {FILL}; {_TRIGGERS}"
