"""The tables of alerts.db: what the evaluator knows."""

from __future__ import annotations

from holdfast.stores.sqlite.database import Schema

FIRST_MIGRATION = """
CREATE TABLE alert_states (
    rule TEXT NOT NULL,
    severity TEXT NOT NULL,
    labels TEXT NOT NULL,             -- a JSON object
    since_ns INTEGER NOT NULL,        -- nanoseconds since 1970, as all times
    firing_ns INTEGER,                -- NULL while it is pending
    value REAL NOT NULL,
    PRIMARY KEY (rule, severity, labels)
) WITHOUT ROWID;
CREATE TABLE alert_series (
    id INTEGER PRIMARY KEY,
    metric TEXT NOT NULL,
    labels TEXT NOT NULL              -- a JSON list: the values, in the order of the metric's labels
);
CREATE TABLE alert_snapshots (
    time_ns INTEGER PRIMARY KEY,
    sampled TEXT NOT NULL             -- a JSON object: id of the series, value
)
"""

# "HFD" and 4: the fourth kind of file that Holdfast writes.
SCHEMA = Schema(application_id=0x48464404, migrations=(FIRST_MIGRATION,))
