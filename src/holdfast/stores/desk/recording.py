"""Failures coming in: rows, the index of their attributes, and their groups, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.deadletter.failures import Recorded
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.desk.groups import count_in_groups, hour_of
from holdfast.stores.desk.places import note_ended
from holdfast.stores.desk.rows import all_columns, indexed_value
from holdfast.stores.desk.statements import Ask, AskMany, Operation, batch, portable

Key = tuple[str, str, str]

# Adds rows, but for those that are there already. The order given is the order of the ids.
_INSERT = batch(
    """
    INSERT INTO failed_messages (
        message_id, subscription, content_digest, source_topic, failure_reason, error_details, original_message, data,
        data_is_text, attributes, ordering_key, publish_time, delivery_attempt, retry_count, status, created_at,
        failed_at, retry_at, retry_success_at, failure_class, fingerprint, generation, origin_id, revision, legal_hold,
        sent_at, sent_message_id, replay_id, changed_at
    )
    SELECT :message_id, :subscription, :content_digest, :source_topic, :failure_reason, :error_details,
        :original_message, :data, :data_is_text, :attributes, :ordering_key, :publish_time, :delivery_attempt,
        :retry_count, :status, ts(:created_at), ts(:failed_at), ts(:retry_at), ts(:retry_success_at), :failure_class,
        :fingerprint, :generation, :origin_id, :revision, :legal_hold, ts(:sent_at), :sent_message_id, :replay_id,
        ts(:changed_at)
    FROM {given} WHERE true
    ON CONFLICT (message_id, subscription, content_digest) DO NOTHING
    RETURNING id, subscription, message_id, content_digest
    """,
    message_id="text",
    subscription="text",
    content_digest="text",
    source_topic="text",
    failure_reason="text",
    error_details="text",
    original_message="json",
    data="bytes",
    data_is_text="boolean",
    attributes="json",
    ordering_key="text",
    publish_time="bigint",
    delivery_attempt="bigint",
    retry_count="bigint",
    status="text",
    created_at="bigint",
    failed_at="bigint",
    retry_at="bigint",
    retry_success_at="bigint",
    failure_class="text",
    fingerprint="text",
    generation="bigint",
    origin_id="bigint",
    revision="bigint",
    legal_hold="boolean",
    sent_at="bigint",
    sent_message_id="text",
    replay_id="bigint",
    changed_at="bigint",
)

# Rows that were there already, by their keys.
_FIND = batch(
    """
    SELECT id, f.subscription, f.message_id, f.content_digest FROM failed_messages AS f, {given}
    WHERE f.message_id = :message_id AND f.subscription = :subscription AND f.content_digest = :content_digest
    """,
    message_id="text",
    subscription="text",
    content_digest="text",
)

# Attributes of new rows, to be searched for.
_INDEX_ATTRIBUTES = batch(
    """
    INSERT INTO failure_attributes (name, value, failure_id) SELECT :name, :value, :failure_id FROM {given}
    WHERE true ON CONFLICT DO NOTHING
    """,
    name="text",
    value="text",
    failure_id="bigint",
)

# The longest queue of an hour: how many wait for a retry, now that some more do.
_MEASURE_QUEUE = portable("""
    INSERT INTO retry_queue_peaks (hour, longest)
    SELECT :hour, sum(count) FROM failure_counts WHERE status = 'queued_for_retry' AND count > 0
    ON CONFLICT (hour) DO UPDATE SET longest =
        CASE WHEN excluded.longest > retry_queue_peaks.longest THEN excluded.longest ELSE retry_queue_peaks.longest END
""")


def record(failures: Sequence[FailedMessage]) -> Operation[Sequence[Recorded]]:
    keys = [failure.key for failure in failures]
    rows = {key: (failure, all_columns(failure)) for key, failure in reversed([*zip(keys, failures, strict=True)])}
    given = [rows[key][1] for key in dict.fromkeys(keys)]
    ids = _by_key((yield AskMany(_INSERT, given)))
    new = [(failure_id, rows[key][0]) for key, failure_id in ids.items()]
    known = [key for key in rows if key not in ids]
    if known:
        ids |= _by_key((yield AskMany(_FIND, [rows[key][1] for key in known])))
        keyed = [ids[key] for key in known if rows[key][0].ordering_key]
        if keyed:
            yield from note_ended(keyed)
    yield from _count(new)
    return _recorded(keys, ids, {failure_id for failure_id, _ in new})


def _by_key(rows: Sequence[tuple[Any, ...]]) -> dict[Key, int]:
    return {(subscription, message_id, digest): failure_id for failure_id, subscription, message_id, digest in rows}


def _recorded(keys: Sequence[Key], ids: Mapping[Key, int], new: set[int]) -> Sequence[Recorded]:
    """Of one key only the first is new."""
    recorded = []
    for key in keys:
        recorded.append(Recorded(ids[key], ids[key] in new))
        new.discard(ids[key])
    return recorded


def _count(new: Sequence[tuple[int, FailedMessage]]) -> Operation[None]:
    if not new:
        return
    attributes = [
        {"name": name, "value": indexed_value(value), "failure_id": failure_id}
        for failure_id, failure in new
        for name, value in failure.attributes.items()
    ]
    if attributes:
        yield AskMany(_INDEX_ATTRIBUTES, attributes)
    yield from count_in_groups([failure for _, failure in new])
    queued = [failure.created_at_ns for _, failure in new if failure.status is FailureStatus.QUEUED_FOR_RETRY]
    if queued:
        yield Ask(_MEASURE_QUEUE, {"hour": hour_of(max(queued))})
