"""SQL that is written once for SQLite and PostgreSQL, and what an operation asks of a database.

An operation is a generator: it yields statements and is sent their rows. So the same one runs on SQLite's writer
thread and on a connection of PostgreSQL. It runs in one transaction, which may be begun again from the start.

In a portable statement a value is `:name`. `ts(:name)` is a time of failed_messages and `ns(column)` its nanoseconds,
`IN list(:name)` finds members of a list. A batch stands for one statement per row in SQLite; in PostgreSQL `{given}`
becomes a relation of all rows, so that it is one for all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]

_VALUE = re.compile(r"(?<![:\w]):([a-z]\w*)")
_TIME_OF = re.compile(r"\bts\(:(\w+)\)")
_NANOSECONDS_OF = re.compile(r"\bns\(([\w.]+)\)")
_IN_LIST = re.compile(r"\bIN list\(:(\w+)\)")

# PostgreSQL keeps times to the microsecond. An interval of seconds and one of microseconds stay exact where one product
# would pass through a float.
_POSTGRES_TIME = (
    r"(timestamptz 'epoch' + :\1::bigint / 1000000000 * interval '1 second'"
    r" + :\1::bigint / 1000 %% 1000000 * interval '1 microsecond')"
)
_POSTGRES_NANOSECONDS = r"((extract(epoch FROM \1) * 1000000)::bigint * 1000)"

# How a column of a batch is written as JSON, and read out of it again. Bytes come as base64.
_POSTGRES_TYPES = {"bytes": "text", "json": "text"}
_POSTGRES_VALUES = {"bytes": "decode(given.{}, 'base64')", "json": "given.{}::jsonb"}


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement, or a part of one, in both dialects."""

    sqlite: str
    postgres: str

    def __add__(self, other: Sql) -> Sql:
        return Sql(f"{self.sqlite} {other.sqlite}", f"{self.postgres} {other.postgres}")


@functools.lru_cache(maxsize=1000)
def portable(text: str) -> Sql:
    return Sql(_for_sqlite(text), _VALUE.sub(r"%(\1)s", _for_postgres(text)))


@functools.lru_cache(maxsize=1000)
def either(sqlite: str, postgres: str) -> Sql:
    """Where the databases differ too much."""
    return Sql(_for_sqlite(sqlite), _VALUE.sub(r"%(\1)s", _for_postgres(postgres)))


@dataclass(frozen=True, slots=True)
class Batch:
    """A statement for many rows. `columns` are what PostgreSQL has to know of their types."""

    sql: Sql
    columns: Sequence[str]
    gives_rows: bool


def batch(text: str, **columns: str) -> Batch:
    """`columns` are the types of the values: text, bigint, boolean, bytes or json."""
    definition = ", ".join(f"{name} {_POSTGRES_TYPES.get(kind, kind)}" for name, kind in columns.items())
    given = f"json_to_recordset(%(rows)s::json) AS given ({definition})"

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return _POSTGRES_VALUES.get(columns[name], "given.{}").format(name)

    sqlite = re.sub(r"(FROM|,) \{given\}", "", text)
    postgres = _VALUE.sub(value, _for_postgres(text)).replace("{given}", given)
    return Batch(Sql(_for_sqlite(sqlite), postgres), tuple(columns), "SELECT id" in text or "RETURNING" in text)


def _for_sqlite(text: str) -> str:
    text = _TIME_OF.sub(r":\1", text)
    text = _NANOSECONDS_OF.sub(r"\1", text)
    return _IN_LIST.sub(r"IN (SELECT value FROM json_each(:\1))", text)


def _for_postgres(text: str) -> str:
    text = text.replace("%", "%%")
    text = _TIME_OF.sub(_POSTGRES_TIME, text)
    text = _NANOSECONDS_OF.sub(_POSTGRES_NANOSECONDS, text)
    return _IN_LIST.sub(r"= ANY (:\1)", text)


# Values that each database writes in its own way.


@dataclass(frozen=True, slots=True)
class Json:
    value: Any


@dataclass(frozen=True, slots=True)
class Plain:
    """A text, or a list of them, to be looked for in payloads, which are kept as they are."""

    value: Any


@dataclass(frozen=True, slots=True)
class PayloadJson:
    """A payload as people read it in `original_message`."""

    data: bytes


# What an operation yields, and what it is.


@dataclass(frozen=True, slots=True)
class Ask:
    sql: Sql
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskMany:
    """Is sent the rows of all."""

    batch: Batch
    rows: Sequence[Mapping[str, Any]]


Operation = Generator[Ask | AskMany, Sequence[Row], T]
