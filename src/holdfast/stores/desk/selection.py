"""A selection as conditions over `failed_messages`, here called f. Whatever people gave is a parameter, never SQL; a
condition is put in only when asked for, so that its index can be used.

What is selected by an attribute is read along the index of attributes, which is in the order of ids: newest first needs
no sorting then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.deadletter.selection import Selection, path_parts
from holdfast.stores.desk.rows import indexed_value
from holdfast.stores.desk.statements import Plain, Sql, either, portable

_ANY = portable("FROM failed_messages AS f WHERE true")

# CROSS JOIN: SQLite then reads the attributes first.
_BY_ATTRIBUTE = portable("""FROM failure_attributes AS a CROSS JOIN failed_messages AS f
    WHERE a.name = :name_0 AND a.value = :value_0 AND f.id = a.failure_id""")

_HAS_ATTRIBUTE = """AND EXISTS (SELECT 1 FROM failure_attributes AS other
    WHERE other.name = :name_{0} AND other.value = :value_{0} AND other.failure_id = f.id)"""

_IDS = portable("AND f.id IN list(:ids)")
_STATUS = portable("AND f.status = :status")
_STATUSES = portable("AND f.status IN list(:statuses)")
_REASON = portable("AND f.failure_reason = :reason")
_SUBSCRIPTION = portable("AND f.subscription = :subscription")
_TOPIC = portable("AND f.source_topic = :topic")
_FINGERPRINT = portable("AND f.fingerprint = :fingerprint")
_MESSAGE_ID = portable("AND f.message_id = :message_id")
# The counters tell between which ids the rows of an hour lie: newest first is then a range of ids, however old.
_SINCE = portable("""AND f.created_at >= ts(:since)
    AND f.id >= (SELECT min(first_id) FROM failure_counts WHERE hour >= :since - :since % 3600000000000)""")
_UNTIL = portable("""AND f.created_at < ts(:until)
    AND f.id <= (SELECT max(last_id) FROM failure_counts WHERE hour < :until)""")
_FEWEST_ATTEMPTS = portable("AND f.delivery_attempt >= :fewest_attempts")
_MOST_ATTEMPTS = portable("AND f.delivery_attempt <= :most_attempts")
# In the words of the index, which has only the few that are held.
_HELD = either("AND f.legal_hold <> 0", "AND f.legal_hold")
_NOT_HELD = portable("AND NOT f.legal_hold")
# Most rows have 0 here, and are not in the index.
_REPLAY = portable("AND f.replay_id = :replay_id AND f.replay_id <> 0")
_ORIGIN = portable("AND f.origin_id = :origin_id AND f.origin_id <> 0")

# SQLite's own upper and lower case know only ASCII. For other letters we give it a function, `holds`, which is slower.
_TEXT_POSTGRES = """AND (strpos(lower(f.error_details), lower(:text)) > 0 OR
        strpos(lower(CASE WHEN f.data_is_text THEN convert_from(f.data, 'UTF8') END COLLATE "default"),
            lower(:plain_text)) > 0)"""
_TEXT = either(
    "AND (holds(f.error_details, :text) OR (f.data_is_text AND holds(f.data, :text)))",
    _TEXT_POSTGRES,
)
_ASCII_TEXT = either(
    """AND (instr(lower(f.error_details), lower(:text)) > 0
        OR (f.data_is_text AND instr(lower(CAST(f.data AS text)), lower(:text)) > 0))""",
    _TEXT_POSTGRES,
)

# A value within original_message. In SQLite each key is a step of its own, because its paths cannot hold every key.
_PAYLOAD_SQLITE = "AND EXISTS (SELECT 1 FROM {steps} WHERE {keys} AND {value} = :payload_{n})"
_FIRST_STEP = "json_each(f.original_message) AS p{n}_0"
_NEXT_STEP = """json_each(CASE WHEN p{n}_{before}.type IN ('object', 'array') THEN p{n}_{before}.value ELSE '[]' END)
    AS p{n}_{step}"""
_KEY = "CAST(p{n}_{step}.key AS text) = :payload_{n}_{step}"
_VALUE = """CASE p{n}_{last}.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'null' THEN 'null'
    ELSE CAST(p{n}_{last}.value AS text) END"""
_PAYLOAD_POSTGRES = """AND CASE WHEN jsonb_typeof(f.original_message #> :payload_{n}_path) = 'null' THEN 'null'
    ELSE f.original_message #>> :payload_{n}_path END = :payload_{n}"""


@dataclass(slots=True)
class Selected:
    """`sql` begins with FROM and can take more conditions. `key` is the id, by the column whose index is in use."""

    sql: Sql
    key: str = "f.id"
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, sql: Sql, **values: Any) -> None:
        self.sql += sql
        self.values.update(values)


def selected(selection: Selection) -> Selected:
    found = _begun(selection.attributes)
    for number, (path, value) in enumerate(selection.payload.items()):
        found.add(_payload(number, path_parts(path)), **_payload_values(number, path_parts(path), value))
    _add_given(found, selection)
    if selection.text:
        found.add(
            _ASCII_TEXT if selection.text.isascii() else _TEXT, text=selection.text, plain_text=Plain(selection.text)
        )
    return found


def _begun(attributes: Mapping[str, str]) -> Selected:
    if not attributes:
        return Selected(_ANY)
    found = Selected(_BY_ATTRIBUTE, "a.failure_id")
    for number, (name, value) in enumerate(attributes.items()):
        more = portable(_HAS_ATTRIBUTE.format(number)) if number else Sql("", "")
        found.add(more, **{f"name_{number}": name, f"value_{number}": indexed_value(value)})
    return found


def _add_given(found: Selected, selection: Selection) -> None:
    statuses = [status.value for status in selection.statuses]
    if selection.ids:
        found.add(_IDS, ids=list(selection.ids))
    if len(statuses) == 1:
        found.add(_STATUS, status=statuses[0])
    elif statuses:
        found.add(_STATUSES, statuses=statuses)
    texts = {
        "reason": (_REASON, selection.reason),
        "subscription": (_SUBSCRIPTION, selection.subscription),
        "topic": (_TOPIC, selection.topic),
        "fingerprint": (_FINGERPRINT, selection.fingerprint),
        "message_id": (_MESSAGE_ID, selection.message_id),
    }
    for name, (condition, text) in texts.items():
        if text:
            found.add(condition, **{name: text})
    others: dict[str, tuple[Sql, int | None]] = {
        "since": (_SINCE, selection.since_ns),
        "until": (_UNTIL, selection.until_ns),
        "fewest_attempts": (_FEWEST_ATTEMPTS, selection.fewest_attempts),
        "most_attempts": (_MOST_ATTEMPTS, selection.most_attempts),
        "legal_hold": (_HELD if selection.legal_hold else _NOT_HELD, selection.legal_hold),
        "replay_id": (_REPLAY, selection.replay_id),
        "origin_id": (_ORIGIN, selection.origin_id),
    }
    for name, (condition, value) in others.items():
        if value is not None:
            found.add(condition, **{name: value})


def _payload(n: int, parts: list[str]) -> Sql:
    steps = [_FIRST_STEP.format(n=n)]
    steps += [_NEXT_STEP.format(n=n, before=step - 1, step=step) for step in range(1, len(parts))]
    keys = [_KEY.format(n=n, step=step) for step in range(len(parts))]
    value = _VALUE.format(n=n, last=len(parts) - 1)
    return either(
        _PAYLOAD_SQLITE.format(steps=", ".join(steps), keys=" AND ".join(keys), value=value, n=n),
        _PAYLOAD_POSTGRES.format(n=n),
    )


def _payload_values(n: int, parts: list[str], value: str) -> dict[str, Any]:
    return {
        f"payload_{n}": Plain(value),
        f"payload_{n}_path": Plain(parts),
        **{f"payload_{n}_{step}": part for step, part in enumerate(parts)},
    }
