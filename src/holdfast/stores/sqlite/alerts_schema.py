"""The tables of alerts.db: what the evaluator knows, and who was told."""

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

SECOND_MIGRATION = """
CREATE TABLE alerts (
    id INTEGER PRIMARY KEY,           -- in the order in which they began
    rule TEXT NOT NULL,
    severity TEXT NOT NULL,
    labels TEXT NOT NULL,             -- a JSON object
    summary TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,                 -- NULL while it fires
    value REAL,
    details TEXT NOT NULL             -- a JSON object
);
CREATE INDEX alerts_that_fire ON alerts (id) WHERE ended_ns IS NULL;
CREATE TABLE alert_notices (
    receiver TEXT NOT NULL,
    alert_id INTEGER NOT NULL,
    group_key TEXT NOT NULL,
    told INTEGER NOT NULL,            -- 1 once the receiver knows that it began; no row once nothing is to be told
    PRIMARY KEY (receiver, alert_id)
) WITHOUT ROWID;
CREATE TABLE alert_groups (
    receiver TEXT NOT NULL,
    key TEXT NOT NULL,
    labels TEXT NOT NULL,
    due_ns INTEGER NOT NULL,
    sent_ns INTEGER,                  -- when the receiver was last told of it
    PRIMARY KEY (receiver, key)
) WITHOUT ROWID;
CREATE TABLE alert_sendings (
    id TEXT PRIMARY KEY,
    notification TEXT NOT NULL,       -- JSON, as a webhook gets it
    group_keys TEXT NOT NULL,         -- JSON lists, as the next two: of what the receiver will know once it is sent
    begun TEXT NOT NULL,
    ended TEXT NOT NULL,
    next_try_ns INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    error TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE alert_silences (
    id INTEGER PRIMARY KEY,
    matchers TEXT NOT NULL,           -- a JSON list of texts
    starts_ns INTEGER NOT NULL,
    ends_ns INTEGER NOT NULL,
    author TEXT NOT NULL,
    comment TEXT NOT NULL,
    created_ns INTEGER NOT NULL
)
"""

# "HFD" and 4: the fourth kind of file that Holdfast writes.
SCHEMA = Schema(application_id=0x48464404, migrations=(FIRST_MIGRATION, SECOND_MIGRATION))
