"""The first format of the desk's file, the table alone, and how its rows are taken over into the next one."""

from __future__ import annotations

from holdfast.deadletter.fingerprints import example_of, fingerprint
from holdfast.model.failed_message import FailedMessage

CREATE_FORMAT_1 = """
    CREATE TABLE failed_messages (
        id                INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id        TEXT NOT NULL,
        subscription      TEXT NOT NULL,
        source_topic      TEXT NOT NULL,
        failure_reason    TEXT NOT NULL,
        error_details     TEXT NOT NULL,
        retry_count       INTEGER NOT NULL DEFAULT 0,
        status            TEXT NOT NULL
            CHECK (status IN ('queued_for_retry', 'permanent_failure', 'retry_success', 'replayed')),
        original_message  TEXT NOT NULL,
        data              BLOB NOT NULL,
        attributes        TEXT NOT NULL,
        ordering_key      TEXT NOT NULL,
        publish_time      INTEGER NOT NULL,
        delivery_attempt  INTEGER NOT NULL,
        retry_at          INTEGER,
        created_at        INTEGER NOT NULL,
        retry_success_at  INTEGER,
        content_digest    TEXT NOT NULL,
        UNIQUE (subscription, message_id, content_digest)
    );
    CREATE INDEX idx_failed_messages_status ON failed_messages (status);
    CREATE INDEX idx_failed_messages_retry_at ON failed_messages (retry_at) WHERE status = 'queued_for_retry';
    CREATE INDEX idx_failed_messages_created_at ON failed_messages (created_at DESC);
    CREATE INDEX idx_failed_messages_failure_reason ON failed_messages (failure_reason);
    CREATE INDEX idx_failed_messages_source_topic ON failed_messages (source_topic);
    CREATE INDEX idx_failed_messages_subscription ON failed_messages (subscription)
"""

# What is known of old rows, in the order of their ids, and everything that is counted of them.
TAKE_OVER_FORMAT_1 = """
    INSERT INTO failed_messages (
        id, message_id, subscription, source_topic, failure_reason, retry_count, status, retry_at, created_at,
        retry_success_at, fingerprint, changed_at, publish_time, delivery_attempt, content_digest, data_is_text,
        ordering_key, attributes, error_details, data, original_message
    )
    SELECT id, message_id, subscription, source_topic, failure_reason, retry_count, status, retry_at, created_at,
        retry_success_at, old_fingerprint(subscription, failure_reason, error_details, message_id, ordering_key),
        coalesce(retry_success_at, created_at), publish_time, delivery_attempt, content_digest, data_is_text(data),
        ordering_key, attributes, error_details, data, original_message
    FROM failed_messages_1 ORDER BY id;

    INSERT INTO failure_attributes (name, value, failure_id)
    SELECT told.key, indexed_value(told.value), f.id FROM failed_messages AS f, json_each(f.attributes) AS told;

    INSERT INTO failure_counts (hour, failure_reason, status, count, retries, retried, first_id, last_id)
    SELECT created_at - created_at % 3600000000000, failure_reason, status, count(*), sum(retry_count),
        sum(retry_count > 0), min(id), max(id)
    FROM failed_messages GROUP BY 1, 2, 3;

    INSERT INTO failure_group_counts (fingerprint, status, count)
    SELECT fingerprint, status, count(*) FROM failed_messages GROUP BY 1, 2;

    INSERT INTO failure_groups (fingerprint, subscription, failure_reason, failure_class, example, first_seen_ns,
        last_seen_ns, count)
    SELECT fingerprint, subscription, failure_reason, failure_class,
        old_example(error_details, message_id, ordering_key), min(created_at),
        max(created_at), count(*)
    FROM failed_messages GROUP BY fingerprint;

    INSERT INTO failure_group_hours (fingerprint, hour, count)
    SELECT fingerprint, created_at - created_at % 3600000000000, count(*)
    FROM failed_messages GROUP BY 1, 2;
"""


# Functions in its SQL.


def old_fingerprint(subscription: str, reason: str, error: str, message_id: str, ordering_key: str) -> str:
    failure = FailedMessage(message_id, subscription, "", reason, error, b"", ordering_key=ordering_key)
    return fingerprint(failure)


def old_example(error: str, message_id: str, ordering_key: str) -> str:
    return example_of(FailedMessage(message_id, "", "", "", error, b"", ordering_key=ordering_key))
