"""Format 2 of the desk's schema: totals for metrics, kept by triggers. What they are is said in
stores/desk/totals_schema.py. A statement that changes many rows adds to each total once, in the order of their keys."""

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
    what   TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    count  BIGINT NOT NULL,
    PRIMARY KEY (what, name)
) WITH (fillfactor = 70)
"""

# `changes` have what, name and how many more. A new name has a row of its own while there is room for it.
_ADD = f"""
    INSERT INTO failure_totals (what, name, count)
    SELECT what, given, sum(number) FROM (
        SELECT changed.what, changed.number, CASE
            WHEN known.name IS NOT NULL OR changed.what NOT IN ('reason', 'recorded', 'settled', 'open')
                OR coalesce(taken.rows, 0) + dense_rank() OVER (PARTITION BY changed.what, known.name IS NULL
                    ORDER BY changed.name) <= CASE changed.what WHEN 'reason' THEN {MOST_REASONS}
                    ELSE {MOST_SUBSCRIPTIONS} END
            THEN changed.name ELSE '{OTHER}' END AS given
        FROM (SELECT what, name, sum(number) AS number FROM (<changes>) AS single
            GROUP BY 1, 2 HAVING sum(number) <> 0) AS changed
        LEFT JOIN failure_totals AS known ON known.what = changed.what AND known.name = changed.name
        LEFT JOIN (SELECT what, count(*) AS rows FROM failure_totals GROUP BY what) AS taken
            ON taken.what = changed.what
    ) AS bounded
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (what, name) DO UPDATE SET count = failure_totals.count + excluded.count;
"""

_FUNCTION = """
CREATE FUNCTION <name>() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
BEGIN
    <body>
    RETURN NULL;
END $body$;
CREATE TRIGGER <name> AFTER <event> ON <table> <referencing> FOR EACH STATEMENT EXECUTE FUNCTION <name>()
"""

_OLD, _NEW = "OLD TABLE AS old_rows", "NEW TABLE AS new_rows"


def _now(rows: str, number: int) -> list[str]:
    """What there is now, of rows that came or went."""
    return [
        f"SELECT 'status' AS what, status AS name, {number} AS number FROM {rows}",
        f"SELECT 'open', subscription, {number} FROM {rows} WHERE {is_open(rows)}",
    ]


_INSERTED = [
    *_now("new_rows", 1),
    "SELECT 'reason', failure_reason, 1 FROM new_rows",
    "SELECT 'recorded', subscription, 1 FROM new_rows",
    "SELECT 'permanent', '', 1 FROM new_rows WHERE status = 'permanent_failure'",
]
_BOTH = "FROM new_rows AS n JOIN old_rows AS o USING (id)"
_UPDATED = [
    *_now("new_rows", 1),
    *_now("old_rows", -1),
    f"SELECT 'permanent', '', 1 {_BOTH} WHERE n.status = 'permanent_failure' AND o.status <> 'permanent_failure'",
    f"SELECT 'settled', n.subscription, 1 {_BOTH} WHERE n.status IN {MENDED} AND o.status NOT IN {MENDED}",
]


def _groups(rows: str, number: int) -> list[str]:
    """A group that is closed takes its permanent failures out of the open ones."""
    return [
        f"SELECT 'group' AS what, state AS name, {number} AS number FROM {rows}",
        f"""SELECT 'open', subscription, {-number} * counts.count
        FROM {rows} JOIN failure_group_counts AS counts USING (fingerprint)
        WHERE state IN {CLOSED_STATES} AND counts.status = 'permanent_failure'""",
    ]


def _trigger(name: str, event: str, table: str, referencing: str, body: str) -> str:
    parts = {"name": name, "event": event, "table": table, "referencing": referencing, "body": body}
    text = _FUNCTION
    for part, value in parts.items():
        text = text.replace(f"<{part}>", value)
    return text


def _adding(name: str, event: str, table: str, tables: str, changes: list[str]) -> str:
    return _trigger(name, event, table, f"REFERENCING {tables}", _ADD.replace("<changes>", " UNION ALL ".join(changes)))


_NOTHING_LEFT = "UPDATE failure_totals SET count = 0 WHERE what IN ('status', 'open');"

# The triggers first: they keep others from writing until all is counted.
TO_FORMAT_2 = ";\n".join(
    (
        _TABLE,
        INDEX_JOBS,
        _adding("total_insert", "INSERT", "failed_messages", _NEW, _INSERTED),
        _adding("total_update", "UPDATE", "failed_messages", f"{_NEW} {_OLD}", _UPDATED),
        _adding("total_delete", "DELETE", "failed_messages", _OLD, _now("old_rows", -1)),
        _trigger("total_truncate", "TRUNCATE", "failed_messages", "", _NOTHING_LEFT),
        _adding("total_group_insert", "INSERT", "failure_groups", _NEW, _groups("new_rows", 1)),
        _adding(
            "total_group_update",
            "UPDATE",
            "failure_groups",
            f"{_NEW} {_OLD}",
            [*_groups("new_rows", 1), *_groups("old_rows", -1)],
        ),
        _adding("total_group_delete", "DELETE", "failure_groups", _OLD, _groups("old_rows", -1)),
        FILL,
    )
)
