"""Groups of failures with one cause, counted as they come in, and what people say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.deadletter.audit import Action
from holdfast.deadletter.fingerprints import example_of
from holdfast.deadletter.groups import Comment, Group, GroupFilter, GroupPage, GroupState
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailedMessage, FailureClass
from holdfast.stores.desk.audit import append
from holdfast.stores.desk.statements import Ask, AskMany, Operation, Row, Sql, batch, portable

# Which groups are there: none is ever removed.
_KNOWN = portable("SELECT fingerprint FROM failure_groups WHERE fingerprint IN list(:fingerprints)")

# Makes groups, or counts more members. A resolved one has returned.
_COUNT_IN = batch(
    """
    INSERT INTO failure_groups (fingerprint, subscription, failure_reason, failure_class, example, first_seen_ns,
        last_seen_ns, count)
    SELECT :fingerprint, :subscription, :failure_reason, :failure_class, :example, :first_seen_ns, :last_seen_ns,
        :count
    FROM {given} WHERE true
    ON CONFLICT (fingerprint) DO UPDATE SET
        count = failure_groups.count + excluded.count,
        first_seen_ns = CASE WHEN excluded.first_seen_ns < failure_groups.first_seen_ns
            THEN excluded.first_seen_ns ELSE failure_groups.first_seen_ns END,
        last_seen_ns = CASE WHEN excluded.last_seen_ns > failure_groups.last_seen_ns
            THEN excluded.last_seen_ns ELSE failure_groups.last_seen_ns END,
        version = failure_groups.version + CASE WHEN failure_groups.state = 'resolved' THEN 1 ELSE 0 END,
        state = CASE WHEN failure_groups.state = 'resolved' THEN 'reopened' ELSE failure_groups.state END
    """,
    fingerprint="text",
    subscription="text",
    failure_reason="text",
    failure_class="text",
    example="text",
    first_seen_ns="bigint",
    last_seen_ns="bigint",
    count="bigint",
)

_COUNT_IN_HOURS = batch(
    """
    INSERT INTO failure_group_hours (fingerprint, hour, count)
    SELECT :fingerprint, :hour, :count FROM {given} WHERE true
    ON CONFLICT (fingerprint, hour) DO UPDATE SET count = failure_group_hours.count + excluded.count
    """,
    fingerprint="text",
    hour="bigint",
    count="bigint",
)

# How many are permanent failures is counted by triggers, beside the group.
_SELECT = portable("""
    SELECT g.fingerprint, g.subscription, g.failure_reason, g.failure_class, g.example, g.first_seen_ns, g.last_seen_ns,
        g.count, coalesce(s.count, 0), g.state, g.assignee, g.version
    FROM failure_groups AS g
    LEFT JOIN failure_group_counts AS s ON s.fingerprint = g.fingerprint AND s.status = 'permanent_failure'
    WHERE true
""")
_FINGERPRINT = portable("AND g.fingerprint = :fingerprint")
_STATES = portable("AND g.state IN list(:states)")
_SUBSCRIPTION = portable("AND g.subscription = :subscription")
_REASON = portable("AND g.failure_reason = :reason")
_ASSIGNEE = portable("AND g.assignee = :assignee")
_AFTER = portable("AND (g.last_seen_ns, g.fingerprint) < (:last_seen_ns, :fingerprint)")
_LAST_SEEN_FIRST = portable("ORDER BY g.last_seen_ns DESC, g.fingerprint DESC LIMIT :limit")

# What people change, where nobody else has.
_SAVE = portable("""
    UPDATE failure_groups SET state = :state, assignee = :assignee, version = version + 1
    WHERE fingerprint = :fingerprint AND version = :version RETURNING fingerprint
""")

_COMMENT = portable("""
    INSERT INTO group_comments (fingerprint, author, comment, created_at_ns)
    VALUES (:fingerprint, :author, :comment, :created_at_ns)
""")

_COMMENTS = portable("""
    SELECT author, comment, created_at_ns FROM group_comments WHERE fingerprint = :fingerprint ORDER BY id
""")

_HOURS = portable("""
    SELECT hour, count FROM failure_group_hours WHERE fingerprint = :fingerprint AND hour >= :since ORDER BY hour
""")

HOUR_NS = 3600 * 1_000_000_000


def hour_of(time_ns: int) -> int:
    return time_ns - time_ns % HOUR_NS


def count_in_groups(new: Sequence[FailedMessage]) -> Operation[None]:
    members: dict[str, list[FailedMessage]] = {}
    for failure in new:
        if failure.fingerprint:
            members.setdefault(failure.fingerprint, []).append(failure)
    if not members:
        return
    known = {fingerprint for (fingerprint,) in (yield Ask(_KNOWN, {"fingerprints": [*members]}))}
    # In the order of their keys, so that two desks do not wait for each other in a circle.
    groups = [_group_row(members[key], is_known=key in known) for key in sorted(members)]
    yield AskMany(_COUNT_IN, groups)
    hours = Counter((failure.fingerprint, hour_of(failure.created_at_ns)) for failure in new if failure.fingerprint)
    rows = [{"fingerprint": key[0], "hour": key[1], "count": count} for key, count in sorted(hours.items())]
    yield AskMany(_COUNT_IN_HOURS, rows)


def _group_row(members: Sequence[FailedMessage], *, is_known: bool) -> Mapping[str, Any]:
    """The example is only needed to make a group, and costs more than all the rest."""
    first, times = members[0], [failure.created_at_ns for failure in members]
    return {
        "fingerprint": first.fingerprint,
        "subscription": first.subscription,
        "failure_reason": first.failure_reason,
        "failure_class": first.failure_class.value,
        "example": "" if is_known else example_of(first),
        "first_seen_ns": min(times),
        "last_seen_ns": max(times),
        "count": len(members),
    }


def list_groups(wanted: GroupFilter, page_size: int, page_token: str) -> Operation[GroupPage]:
    conditions: dict[str, tuple[Sql, Any]] = {
        "states": (_STATES, [state.value for state in wanted.states]),
        "subscription": (_SUBSCRIPTION, wanted.subscription),
        "reason": (_REASON, wanted.reason),
        "assignee": (_ASSIGNEE, wanted.assignee),
    }
    query = _SELECT
    values: dict[str, Any] = {"limit": page_size + 1}
    for name, (condition, value) in conditions.items():
        if value:
            query, values[name] = query + condition, value
    if page_token:
        query, values = query + _AFTER, values | _place_of(page_token)
    rows = yield Ask(query + _LAST_SEEN_FIRST, values)
    groups = [_group(row) for row in rows[:page_size]]
    return GroupPage(groups, _token_after(groups[-1]) if len(rows) > page_size else "")


def get_group(fingerprint: str) -> Operation[Group | None]:
    rows = yield Ask(_SELECT + _FINGERPRINT, {"fingerprint": fingerprint})
    return _group(rows[0]) if rows else None


def save_group(group: Group, action: Action) -> Operation[bool]:
    values = {
        "fingerprint": group.fingerprint,
        "state": group.state.value,
        "assignee": group.assignee,
        "version": group.version,
    }
    if not (yield Ask(_SAVE, values)):
        return False
    yield from append(action)
    return True


def comment(fingerprint: str, said: Comment, action: Action) -> Operation[None]:
    values = {"author": said.author, "comment": said.text, "created_at_ns": said.created_at_ns}
    yield Ask(_COMMENT, values | {"fingerprint": fingerprint})
    yield from append(action)


def comments(fingerprint: str) -> Operation[Sequence[Comment]]:
    rows = yield Ask(_COMMENTS, {"fingerprint": fingerprint})
    return [Comment(*row) for row in rows]


def counts_by_hour(fingerprint: str, since_ns: int) -> Operation[Mapping[int, int]]:
    rows = yield Ask(_HOURS, {"fingerprint": fingerprint, "since": hour_of(since_ns)})
    return {row[0]: row[1] for row in rows}


def _group(row: Row) -> Group:
    fingerprint, subscription, reason, failure_class, example, first, last, count, waiting, state, assignee, version = (
        row
    )
    return Group(
        fingerprint=fingerprint,
        subscription=subscription,
        failure_reason=reason,
        failure_class=FailureClass(failure_class),
        example=example,
        first_seen_ns=first,
        last_seen_ns=last,
        count=count,
        waiting=waiting,
        state=GroupState(state),
        assignee=assignee,
        version=version,
    )


def _token_after(group: Group) -> str:
    return f"{group.last_seen_ns}.{group.fingerprint}"


def _place_of(page_token: str) -> dict[str, Any]:
    seen, dot, fingerprint = page_token.partition(".")
    if not dot or not (seen.isascii() and seen.isdecimal() and len(seen) < 20):
        raise BadInput("pageToken", f"is not one that this desk gave: {page_token[:64]!r}")
    return {"last_seen_ns": min(int(seen), 2**63 - 1), "fingerprint": fingerprint}
