"""Replay jobs and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from holdfast.deadletter.audit import Action
from holdfast.deadletter.page_tokens import LARGEST_ID, last_id_given, token_after
from holdfast.deadletter.replay.jobs import Item, ItemPage, ItemState, Job, JobPage, JobState, Options, Target
from holdfast.deadletter.selection import Selection
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.desk.audit import append
from holdfast.stores.desk.failures import keep
from holdfast.stores.desk.rows import load, read_json, within_bytes
from holdfast.stores.desk.selection import selected
from holdfast.stores.desk.statements import Ask, AskMany, Json, Operation, Row, batch, portable

_CREATE_JOB = portable("""
    INSERT INTO replay_jobs (selection, options, actor, state, why, created_at_ns, started_at_ns, ended_at_ns,
        canary_is_done, ended_before, failed_before, runner, leased_until_ns)
    VALUES (:selection, :options, :actor, :state, :why, :created_at_ns, :started_at_ns, :ended_at_ns,
        :canary_is_done, :ended_before, :failed_before, :runner, :leased_until_ns)
    RETURNING id
""")

# The messages of a job: what is selected and can still be sent, those of one ordering key in their order.
_CREATE_ITEMS = portable("""
    INSERT INTO replay_items (job_id, position, failure_id)
    SELECT :job_id, row_number() OVER (ORDER BY f.publish_time, f.id), f.id
""")
_CAN_BE_SENT = portable("""
    AND f.status IN ('permanent_failure', 'queued_for_retry') AND f.sent_at IS NULL
""")

_SET_TOTAL = portable("""
    UPDATE replay_jobs SET total = (SELECT count(*) FROM replay_items WHERE job_id = :id)
    WHERE id = :id RETURNING total
""")

_SELECT_JOB = """
    SELECT id, CAST(selection AS text), CAST(options AS text), actor, state, total, why, created_at_ns, started_at_ns,
        ended_at_ns, canary_is_done, ended_before, failed_before, runner, leased_until_ns, version
    FROM replay_jobs
"""
_GET_JOB = portable(_SELECT_JOB + "WHERE id = :id")
_LIST_JOBS = portable(_SELECT_JOB + "WHERE id < :before")
_STATES = portable("AND state IN list(:states)")
_NEWEST_FIRST = portable("ORDER BY id DESC LIMIT :limit")

# Keeps what can change of a job, where nobody else has changed it.
_SAVE_JOB = portable("""
    UPDATE replay_jobs SET options = :options, state = :state, why = :why, started_at_ns = :started_at_ns,
        ended_at_ns = :ended_at_ns, canary_is_done = :canary_is_done, ended_before = :ended_before,
        failed_before = :failed_before, runner = :runner, leased_until_ns = :leased_until_ns, version = version + 1
    WHERE id = :id AND version = :version RETURNING id
""")

_SELECT_ITEM = """
    SELECT i.job_id, i.position, i.failure_id, i.state, i.message_id, i.note, i.sent_at_ns FROM replay_items AS i
    WHERE i.job_id = :job_id
"""
_IN_STATE = portable(_SELECT_ITEM + "AND i.state = :state AND i.position > :after ORDER BY i.position LIMIT :limit")
_LIST_ITEMS = portable(_SELECT_ITEM + "AND i.position > :after")
_LIST_ITEMS_OF = portable(_SELECT_ITEM + "AND i.state IN list(:states) AND i.position > :after")
_IN_ORDER = portable("ORDER BY i.position LIMIT :limit")

_ITEMS_OF = portable("""
    SELECT i.job_id, i.position, i.failure_id, i.state, i.message_id, i.note, i.sent_at_ns FROM replay_items AS i
    WHERE i.failure_id IN list(:failure_ids) ORDER BY i.job_id, i.position LIMIT :limit
""")

# How large the payloads are that items stand for.
_SIZES = portable("SELECT id, length(data) FROM failed_messages WHERE id IN list(:ids)")

_SAVE_ITEMS = batch(
    """
    UPDATE replay_items SET state = :state, message_id = :message_id, note = :note, sent_at_ns = :sent_at_ns
    FROM {given} WHERE replay_items.job_id = :job_id AND replay_items.position = :position
    """,
    job_id="bigint",
    position="bigint",
    state="text",
    message_id="text",
    note="text",
    sent_at_ns="bigint",
)

_COUNT_ITEMS = portable("SELECT state, count(*) FROM replay_items WHERE job_id = :job_id GROUP BY state")


def create_job(job: Job, action: Action) -> Operation[Job]:
    [(job_id,)] = yield Ask(_CREATE_JOB, _job_values(job))
    found = selected(job.selection)
    items = _CREATE_ITEMS + found.sql
    if job.options.target is not Target.SHADOW:  # which sends nothing, and tries what was sent before too
        items += _CAN_BE_SENT
    yield Ask(items, found.values | {"job_id": job_id})
    [(total,)] = yield Ask(_SET_TOTAL, {"id": job_id})
    yield from append(replace(action, details={**action.details, "job": job_id, "count": total}))
    return replace(job, id=job_id, total=total, version=1)


def get_job(job_id: int) -> Operation[Job | None]:
    if not 0 < job_id <= LARGEST_ID:
        return None
    rows = yield Ask(_GET_JOB, {"id": job_id})
    return _job(rows[0]) if rows else None


def list_jobs(states: Sequence[JobState], page_size: int, page_token: str) -> Operation[JobPage]:
    values = {
        "before": last_id_given(page_token),
        "limit": page_size + 1,
        "states": [state.value for state in states],
    }
    query = _LIST_JOBS + _STATES if states else _LIST_JOBS
    rows = yield Ask(query + _NEWEST_FIRST, values)
    jobs = [_job(row) for row in rows[:page_size]]
    return JobPage(jobs, token_after(jobs[-1].id) if len(rows) > page_size else "")


def save_job(job: Job, action: Action | None) -> Operation[bool]:
    if not (yield Ask(_SAVE_JOB, _job_values(job) | {"id": job.id, "version": job.version})):
        return False
    if action is not None:
        yield from append(action)
    return True


def pending(job_id: int, limit: int) -> Operation[Sequence[tuple[Item, FailedMessage | None]]]:
    items = yield from _in_state(job_id, ItemState.PENDING, limit, 0)
    rows = yield Ask(_SIZES, {"ids": [item.failure_id for item in items]})
    sizes = {row[0]: row[1] for row in rows}
    fitting = within_bytes([(item.failure_id, sizes.get(item.failure_id, 0)) for item in items])
    failures = {failure.id: failure for failure in (yield from load(fitting))}
    return [(item, failures.get(item.failure_id)) for item in items[: len(fitting)]]


def sent(job_id: int, limit: int, after_position: int) -> Operation[Sequence[Item]]:
    return (yield from _in_state(job_id, ItemState.SENT, limit, after_position))


def save_items(items: Sequence[Item], failures: Sequence[FailedMessage], now_ns: int) -> Operation[Sequence[bool]]:
    if items:
        yield AskMany(_SAVE_ITEMS, [_item_values(item) for item in items])
    return (yield from keep(failures, now_ns))


def items_of(failure_ids: Sequence[int], limit: int) -> Operation[Sequence[Item]]:
    rows = yield Ask(_ITEMS_OF, {"failure_ids": list(failure_ids), "limit": limit})
    return [_item(row) for row in rows]


def count_items(job_id: int) -> Operation[Mapping[ItemState, int]]:
    rows = yield Ask(_COUNT_ITEMS, {"job_id": job_id})
    return dict.fromkeys(ItemState, 0) | {ItemState(state): count for state, count in rows}


def list_items(job_id: int, states: Sequence[ItemState], page_size: int, page_token: str) -> Operation[ItemPage]:
    values = {
        "job_id": job_id,
        "states": [state.value for state in states],
        "after": last_id_given(page_token) if page_token else 0,
        "limit": page_size + 1,
    }
    rows = yield Ask((_LIST_ITEMS_OF if states else _LIST_ITEMS) + _IN_ORDER, values)
    items = [_item(row) for row in rows[:page_size]]
    return ItemPage(items, token_after(items[-1].position) if len(rows) > page_size else "")


def _in_state(job_id: int, state: ItemState, limit: int, after: int) -> Operation[Sequence[Item]]:
    rows = yield Ask(_IN_STATE, {"job_id": job_id, "state": state.value, "limit": limit, "after": after})
    return [_item(row) for row in rows]


# Rows.


def _job_values(job: Job) -> dict[str, Any]:
    return {
        "selection": Json(asdict(job.selection)),
        "options": Json(asdict(job.options)),
        "actor": job.actor,
        "state": job.state.value,
        "why": job.why,
        "created_at_ns": job.created_at_ns,
        "started_at_ns": job.started_at_ns,
        "ended_at_ns": job.ended_at_ns,
        "canary_is_done": job.canary_is_done,
        "ended_before": job.ended_before,
        "failed_before": job.failed_before,
        "runner": job.runner,
        "leased_until_ns": job.leased_until_ns,
    }


def _job(row: Row) -> Job:
    job_id, selection, options, actor, state, total, why, created_at_ns, started_at_ns, ended_at_ns, *progress = row
    canary_is_done, ended_before, failed_before, runner, leased_until_ns, version = progress
    return Job(
        selection=_selection(read_json(selection)),
        options=_options(read_json(options)),
        actor=actor,
        id=job_id,
        state=JobState(state),
        total=total,
        why=why,
        created_at_ns=created_at_ns,
        started_at_ns=started_at_ns,
        ended_at_ns=ended_at_ns,
        canary_is_done=bool(canary_is_done),
        ended_before=ended_before,
        failed_before=failed_before,
        runner=runner,
        leased_until_ns=leased_until_ns,
        version=version,
    )


def _selection(stored: dict[str, Any]) -> Selection:
    statuses = tuple(FailureStatus(status) for status in stored["statuses"])
    return Selection(**stored | {"ids": tuple(stored["ids"]), "statuses": statuses})


def _options(stored: dict[str, Any]) -> Options:
    return Options(**stored | {"target": Target(stored["target"])})


def _item_values(item: Item) -> Mapping[str, Any]:
    return asdict(item) | {"state": item.state.value}


def _item(row: Row) -> Item:
    job_id, position, failure_id, state, message_id, note, sent_at_ns = row
    return Item(job_id, position, failure_id, ItemState(state), message_id, note, sent_at_ns)
