"""The tables of the desk in SQLite, and what keeps its counters right. Times are whole nanoseconds since 1970, UTC:
they sort as numbers.

AUTOINCREMENT: an id is never given twice, so one that a person noted never comes to mean another message.

UNIQUE is not over message_id alone, because every subscription gets its own copy of a message: one message can fail in
two of them, and that is two failures. FailedMessage.key says why the content is part of it.

`data` is the payload byte for byte: JSON cannot hold any bytes, and a replay must send the same ones.
`original_message` is for people and their SQL, and never read back: the payload itself where it is JSON (so that
original_message ->> '$.latitude' works), else {"base64": "…"}. The price is that a payload is stored twice; failures
are few. What is long comes last in a row, so that what is searched lies in its first page.

The triggers count whatever changes the rows, be it people's own SQL. Then they also raise `version`, so that the desk
does not write over it.
"""

from __future__ import annotations

from typing import Any

from holdfast.stores.desk.journey_schema import INDEX_MESSAGES
from holdfast.stores.desk.rows import indexed_value, is_text
from holdfast.stores.sqlite.database import Schema
from holdfast.stores.sqlite.desk_format_1 import CREATE_FORMAT_1, TAKE_OVER_FORMAT_1, old_example, old_fingerprint
from holdfast.stores.sqlite.desk_places import TO_FORMAT_4
from holdfast.stores.sqlite.desk_totals import TO_FORMAT_3

_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000000"

_COUNT_UP = """
    INSERT INTO failure_counts (hour, failure_reason, status, count, retries, retried, first_id, last_id)
    VALUES (NEW.created_at - NEW.created_at % 3600000000000,
        NEW.failure_reason, NEW.status, 1, NEW.retry_count, NEW.retry_count > 0, NEW.id, NEW.id)
    ON CONFLICT (hour, failure_reason, status) DO UPDATE SET
        count = count + 1, retries = retries + excluded.retries, retried = retried + excluded.retried,
        first_id = min(first_id, excluded.first_id), last_id = max(last_id, excluded.last_id);
    INSERT INTO failure_group_counts (fingerprint, status, count) VALUES (NEW.fingerprint, NEW.status, 1)
    ON CONFLICT (fingerprint, status) DO UPDATE SET count = count + 1;
"""

_COUNT_DOWN = """
    UPDATE failure_counts SET
        count = count - 1, retries = retries - OLD.retry_count, retried = retried - (OLD.retry_count > 0)
    WHERE hour = OLD.created_at - OLD.created_at % 3600000000000
        AND failure_reason = OLD.failure_reason AND status = OLD.status;
    UPDATE failure_group_counts SET count = count - 1
    WHERE fingerprint = OLD.fingerprint AND status = OLD.status;
"""


def _filled(text: str, **parts: str) -> str:
    """`<name>` is a part that several statements have."""
    for name, part in parts.items():
        text = text.replace(f"<{name}>", part)
    return text


_TRIGGERS = _filled(
    """
    CREATE TRIGGER failed_messages_inserted AFTER INSERT ON failed_messages BEGIN <count_up> END;
    CREATE TRIGGER failed_messages_counted
        AFTER UPDATE OF created_at, failure_reason, status, retry_count, fingerprint ON failed_messages
        WHEN (NEW.created_at, NEW.failure_reason, NEW.status, NEW.retry_count, NEW.fingerprint)
            <> (OLD.created_at, OLD.failure_reason, OLD.status, OLD.retry_count, OLD.fingerprint)
        BEGIN <count_down> <count_up> END;
    CREATE TRIGGER failed_messages_deleted AFTER DELETE ON failed_messages BEGIN
        <count_down>
        INSERT INTO failure_losses (hour, count) SELECT <now> - <now> % 3600000000000, 1
        WHERE OLD.status NOT IN ('retry_success', 'replayed')
        ON CONFLICT (hour) DO UPDATE SET count = count + 1;
        DELETE FROM failure_attributes WHERE failure_id = OLD.id;
        DELETE FROM failure_revisions WHERE failure_id = OLD.id;
    END;
    CREATE TRIGGER failed_messages_changed AFTER UPDATE ON failed_messages WHEN NEW.version = OLD.version BEGIN
        UPDATE failed_messages SET version = OLD.version + 1,
            changed_at = CASE WHEN NEW.status = OLD.status THEN changed_at ELSE <now> END
        WHERE id = NEW.id;
    END;
    CREATE TRIGGER audit_entries_stay BEFORE UPDATE ON audit_entries BEGIN
        SELECT raise(ABORT, 'the audit trail is only ever added to');
    END;
    CREATE TRIGGER audit_entries_are_kept BEFORE DELETE ON audit_entries BEGIN
        SELECT raise(ABORT, 'the audit trail is only ever added to');
    END;
""",
    now=_NOW,
    count_up=_COUNT_UP,
    count_down=_COUNT_DOWN,
)

_VIEWS = _filled(
    """
    CREATE VIEW v_dlq_statistics AS
    SELECT strftime('%Y-%m-%d %H:00:00', created_at / 1000000000, 'unixepoch') AS hour, failure_reason, status,
        count(*) AS message_count, avg(retry_count) AS avg_retry_count
    FROM failed_messages WHERE created_at > <now> - 86400000000000
    GROUP BY hour, failure_reason, status ORDER BY hour DESC, message_count DESC;
    CREATE VIEW v_active_retry_queue AS
    SELECT message_id, source_topic, failure_reason, retry_count,
        strftime('%Y-%m-%d %H:%M:%f', retry_at / 1000000000.0, 'unixepoch') AS retry_at,
        strftime('%Y-%m-%d %H:%M:%f', created_at / 1000000000.0, 'unixepoch') AS created_at,
        (failed_messages.retry_at - <now>) / 1000000000.0 AS seconds_until_retry
    FROM failed_messages WHERE status = 'queued_for_retry' AND failed_messages.retry_at > <now>
    ORDER BY failed_messages.retry_at;
""",
    now=_NOW,
)

_TABLES = """
    CREATE TABLE failed_messages (
        id                INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id        TEXT NOT NULL,
        subscription      TEXT NOT NULL,
        source_topic      TEXT NOT NULL,
        failure_reason    TEXT NOT NULL,
        retry_count       INTEGER NOT NULL DEFAULT 0,
        status            TEXT NOT NULL
            CHECK (status IN ('queued_for_retry', 'permanent_failure', 'retry_success', 'replayed')),
        retry_at          INTEGER,
        created_at        INTEGER NOT NULL,
        failed_at         INTEGER,
        retry_success_at  INTEGER,
        failure_class     TEXT NOT NULL DEFAULT 'unknown',
        fingerprint       TEXT NOT NULL DEFAULT '',
        generation        INTEGER NOT NULL DEFAULT 0,
        origin_id         INTEGER NOT NULL DEFAULT 0,
        revision          INTEGER NOT NULL DEFAULT 0,
        legal_hold        INTEGER NOT NULL DEFAULT 0,
        sent_at           INTEGER,
        sent_message_id   TEXT NOT NULL DEFAULT '',
        replay_id         INTEGER NOT NULL DEFAULT 0,
        version           INTEGER NOT NULL DEFAULT 1,
        changed_at        INTEGER NOT NULL,  -- when it got its status
        publish_time      INTEGER NOT NULL,
        delivery_attempt  INTEGER NOT NULL,
        content_digest    TEXT NOT NULL,
        data_is_text      INTEGER NOT NULL,
        ordering_key      TEXT NOT NULL,
        attributes        TEXT NOT NULL,
        error_details     TEXT NOT NULL,
        data              BLOB NOT NULL,
        original_message  TEXT NOT NULL,
        UNIQUE (message_id, subscription, content_digest)
    );
    -- Attributes to search by. A very long value is cut, and ends in its hash.
    CREATE TABLE failure_attributes (
        name        TEXT NOT NULL,
        value       TEXT NOT NULL,
        failure_id  INTEGER NOT NULL,
        PRIMARY KEY (name, value, failure_id)
    ) WITHOUT ROWID;
    CREATE TABLE failure_revisions (
        failure_id     INTEGER NOT NULL,
        number         INTEGER NOT NULL,
        data           BLOB NOT NULL,
        attributes     TEXT NOT NULL,
        ordering_key   TEXT NOT NULL,
        author         TEXT NOT NULL,
        comment        TEXT NOT NULL,
        created_at_ns  INTEGER NOT NULL,
        PRIMARY KEY (failure_id, number)
    );
    CREATE TABLE failure_groups (
        fingerprint     TEXT PRIMARY KEY NOT NULL,
        subscription    TEXT NOT NULL,
        failure_reason  TEXT NOT NULL,
        failure_class   TEXT NOT NULL,
        example         TEXT NOT NULL,
        first_seen_ns   INTEGER NOT NULL,
        last_seen_ns    INTEGER NOT NULL,
        count           INTEGER NOT NULL,
        state           TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'acknowledged', 'resolved', 'reopened')),
        assignee        TEXT NOT NULL DEFAULT '',
        version         INTEGER NOT NULL DEFAULT 1
    );
    CREATE INDEX idx_failure_groups_last_seen ON failure_groups (last_seen_ns, fingerprint);
    CREATE TABLE failure_group_hours (
        fingerprint  TEXT NOT NULL,
        hour         INTEGER NOT NULL,
        count        INTEGER NOT NULL,
        PRIMARY KEY (fingerprint, hour)
    ) WITHOUT ROWID;
    -- How many members of a group have which status now.
    CREATE TABLE failure_group_counts (
        fingerprint  TEXT NOT NULL,
        status       TEXT NOT NULL,
        count        INTEGER NOT NULL,
        PRIMARY KEY (fingerprint, status)
    ) WITHOUT ROWID;
    CREATE TABLE group_comments (
        id             INTEGER PRIMARY KEY,
        fingerprint    TEXT NOT NULL,
        author         TEXT NOT NULL,
        comment        TEXT NOT NULL,
        created_at_ns  INTEGER NOT NULL
    );
    CREATE INDEX idx_group_comments_fingerprint ON group_comments (fingerprint);
    CREATE TABLE replay_jobs (
        id             INTEGER PRIMARY KEY AUTOINCREMENT,
        selection      TEXT NOT NULL,
        options        TEXT NOT NULL,
        actor          TEXT NOT NULL,
        state          TEXT NOT NULL,
        total          INTEGER NOT NULL DEFAULT 0,
        why            TEXT NOT NULL,
        created_at_ns  INTEGER NOT NULL,
        started_at_ns  INTEGER,
        ended_at_ns    INTEGER,
        canary_is_done   INTEGER NOT NULL DEFAULT 0,
        ended_before     INTEGER NOT NULL DEFAULT 0,
        failed_before    INTEGER NOT NULL DEFAULT 0,
        runner           TEXT NOT NULL DEFAULT '',
        leased_until_ns  INTEGER NOT NULL DEFAULT 0,
        version        INTEGER NOT NULL DEFAULT 1
    );
    CREATE TABLE replay_items (
        job_id      INTEGER NOT NULL,
        position    INTEGER NOT NULL,
        failure_id  INTEGER NOT NULL,
        state       TEXT NOT NULL DEFAULT 'pending',
        message_id  TEXT NOT NULL DEFAULT '',
        note        TEXT NOT NULL DEFAULT '',
        sent_at_ns  INTEGER,
        PRIMARY KEY (job_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX idx_replay_items_state ON replay_items (job_id, state, position);
    CREATE TABLE audit_entries (
        number    INTEGER PRIMARY KEY,
        at_ns     INTEGER NOT NULL,
        actor     TEXT NOT NULL,
        name      TEXT NOT NULL,
        target    TEXT NOT NULL,
        details   TEXT NOT NULL,
        previous  TEXT NOT NULL,
        hash      TEXT NOT NULL
    );
    -- Of each hour that failures were recorded in: `retries` is the sum of their retry counts, `retried` how many of
    -- them were retried at all. All their ids lie between `first_id` and `last_id`.
    CREATE TABLE failure_counts (
        hour            INTEGER NOT NULL,
        failure_reason  TEXT NOT NULL,
        status          TEXT NOT NULL,
        count           INTEGER NOT NULL,
        retries         INTEGER NOT NULL,
        retried         INTEGER NOT NULL,
        first_id        INTEGER NOT NULL,
        last_id         INTEGER NOT NULL,
        PRIMARY KEY (hour, failure_reason, status)
    ) WITHOUT ROWID;
    CREATE INDEX idx_failure_counts_queued ON failure_counts (count)
        WHERE status = 'queued_for_retry' AND count > 0;
    CREATE TABLE retry_queue_peaks (
        hour     INTEGER PRIMARY KEY,
        longest  INTEGER NOT NULL
    );
    -- Rows that were erased although nothing had come of them.
    CREATE TABLE failure_losses (
        hour   INTEGER PRIMARY KEY,
        count  INTEGER NOT NULL
    );
    CREATE TABLE desk_meta (
        name   TEXT PRIMARY KEY NOT NULL,
        value  TEXT NOT NULL
    );
"""

_INDEXES = """
    CREATE INDEX idx_failed_messages_status ON failed_messages (status);
    CREATE INDEX idx_failed_messages_retry_at ON failed_messages (retry_at) WHERE status = 'queued_for_retry';
    CREATE INDEX idx_failed_messages_created_at ON failed_messages (created_at DESC);
    CREATE INDEX idx_failed_messages_failure_reason ON failed_messages (failure_reason);
    CREATE INDEX idx_failed_messages_source_topic ON failed_messages (source_topic);
    CREATE INDEX idx_failed_messages_subscription ON failed_messages (subscription);
    CREATE INDEX idx_failed_messages_fingerprint ON failed_messages (fingerprint);
    CREATE INDEX idx_failed_messages_out ON failed_messages (id)
        WHERE status = 'queued_for_retry' AND sent_at IS NOT NULL;
    CREATE INDEX idx_failed_messages_ended ON failed_messages (status, changed_at)
        WHERE status IN ('retry_success', 'replayed');
    CREATE INDEX idx_failed_messages_replay ON failed_messages (replay_id) WHERE replay_id <> 0;
    CREATE INDEX idx_failed_messages_origin ON failed_messages (origin_id) WHERE origin_id <> 0;
    CREATE INDEX idx_failed_messages_hold ON failed_messages (id) WHERE legal_hold <> 0;
    CREATE INDEX idx_failure_attributes_failure ON failure_attributes (failure_id);
"""

# The old table hands its highest id on, so that no id is given again.
_TO_FORMAT_2 = _filled(
    """
    ALTER TABLE failed_messages RENAME TO failed_messages_1;
    <tables>
    <take_over>
    DELETE FROM sqlite_sequence WHERE name = 'failed_messages';
    UPDATE sqlite_sequence SET name = 'failed_messages' WHERE name = 'failed_messages_1';
    DROP TABLE failed_messages_1;
    <indexes>
    <triggers>
    <views>
""",
    tables=_TABLES,
    take_over=TAKE_OVER_FORMAT_1,
    indexes=_INDEXES,
    triggers=_TRIGGERS,
    views=_VIEWS,
)


def _holds(value: str | bytes, wanted: str) -> bool:
    text = value.decode() if isinstance(value, bytes) else value
    return wanted.lower() in text.lower()


FUNCTIONS: dict[str, Any] = {
    "holds": _holds,
    "data_is_text": is_text,
    "indexed_value": indexed_value,
    "old_fingerprint": old_fingerprint,
    "old_example": old_example,
}

SCHEMA = Schema(
    application_id=0x48464403,
    migrations=[CREATE_FORMAT_1, _TO_FORMAT_2, TO_FORMAT_3, TO_FORMAT_4, INDEX_MESSAGES],
    cache_kibibytes=64 * 1024,
    readers=4,  # a search through all payloads takes seconds, and retries must not wait for it
    functions=FUNCTIONS,
)
