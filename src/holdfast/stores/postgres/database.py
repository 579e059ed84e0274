"""One schema in a PostgreSQL database: its connections, its format, and what the server's errors mean for us. Knows
nothing of what the tables mean.

Other processes may use the same schema at the same time. The password, which is in the URL, is in no error and no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.errors import (
    BadInput,
    CorruptData,
    HoldfastError,
    Misconfigured,
    NewerData,
    NotFound,
    StartupError,
    StorageUnavailable,
)

T = TypeVar("T")
Work = Callable[[AsyncConnection, int], Awaitable[T]]

DEFAULT_SCHEMA = "holdfast"

# A process applies few batches at once; what is idle costs the server some megabytes each.
MOST_CONNECTIONS = 8

# Longest wait for a connection, be it that all are in use or that the server is away.
CONNECTION_SECONDS = 5.0

# The same for who only wants to know whether the server is there.
CHECK_SECONDS = 0.5

# After this a lost connection is made again only when somebody asks for one. It keeps the pool's growing waits between
# two tries short, so that the store works again soon after the server does.
RECONNECT_SECONDS = 5.0

# Longest wait for one piece of work. Above the server's own limits, so it is for one that has stopped answering.
WORK_SECONDS = 40.0

# How often one piece of work is begun again: eight appliers that made the same documents at once needed four.
MOST_ATTEMPTS = 20

# Where the URL does not say otherwise. A server that vanished without a word is noticed after about 30 seconds.
CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "fallback_application_name": "holdfast",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}

# Every connection's own, whatever the server's defaults are.
# - A commit that has returned is on disk. remote_apply promises even more, so it is left.
# - Statements end, also when they wait for a lock, and so does a transaction whose process has stopped in its middle.
# - Where all statements are by key, a plan that was made while a table was nearly empty would go on reading it whole
#   long after it has grown: then the planner is left nothing but the keys. Elsewhere it plans each statement anew, with
#   the values that it is for.
SET_UP = """
SELECT set_config('search_path', quote_ident(%(schema)s), false),
    set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', %(read_only)s, false),
    set_config('statement_timeout', '30s', false),
    set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config('enable_seqscan', %(scans)s, false),
    set_config('enable_hashjoin', %(scans)s, false),
    set_config('enable_mergejoin', %(scans)s, false),
    set_config('plan_cache_mode', %(plans)s, false),
    set_config('jit', 'off', false)
"""

# One process at a time may bring a schema up to date. The number is ours, made up.
LOCK_FORMAT = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 4865464401))"

# Whether the schema, and in it the table that says its format, exist.
FIND_SCHEMA = """
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s),
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s))
        AND relname = 'holdfast_format')
"""

CREATE_SCHEMA = "CREATE SCHEMA {}"

CREATE_FORMAT = """
CREATE TABLE holdfast_format (version integer NOT NULL);
INSERT INTO holdfast_format VALUES (0)
"""

# With the schema's name: who may not look into it is then told that, and not that the table does not exist.
FIND_FORMAT = "SELECT max(version) FROM {}.holdfast_format"

SET_FORMAT = "UPDATE holdfast_format SET version = %s"

FIND_ENCODING = "SELECT current_setting('server_encoding')"

# While it connects, the server's refusal reaches us as text only. Whatever is not here counts as passing.
_REFUSALS = (
    "no password supplied",
    "no pg_hba.conf entry",
    "authentication failed",
    "is not permitted to log in",
    "permission denied for database",
    "does not exist",
)

_NEEDS_OPERATOR = (
    errors.InsufficientPrivilege,
    errors.InvalidAuthorizationSpecification,
    errors.InvalidPassword,
    errors.InvalidCatalogName,
    errors.InvalidSchemaName,
    errors.UndefinedTable,
    errors.UndefinedColumn,
)

# What two transactions do to each other: the one that is begun again finds the other one done.
_BEGIN_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)


class Overtaken(Exception):
    """Raised by work that finds its ground changed by another transaction: it is undone and begun again."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """Number n brings a schema from format n to n + 1. Forward only."""

    statements: Sequence[str]

    @property
    def version(self) -> int:
        return len(self.statements)


class Database:
    """Opened by `Database.open`; use from one event loop."""

    def __init__(
        self,
        place: str,
        options: Mapping[str, Any],
        schema: str,
        *,
        read_only: bool,
        by_key: bool,
        work_seconds: float | None,
    ) -> None:
        self._place = place
        self._longest_work = work_seconds
        self._options = options
        self._pool = AsyncConnectionPool(
            kwargs=dict(options),
            min_size=1,
            max_size=MOST_CONNECTIONS,
            open=False,
            configure=lambda connection: _set_up(connection, schema, read_only=read_only, by_key=by_key),
            timeout=CONNECTION_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            name=f"holdfast {schema}",
        )

    @classmethod
    async def open(
        cls,
        url: str,
        schema: str,
        migrations: Migrations,
        *,
        read_only: bool = False,
        by_key: bool = True,
        work_seconds: float | None = None,
    ) -> Database:
        """Makes the schema, or brings it up to date. Read-only it must be there, and is left as it is. `by_key` says
        that every statement finds its rows by a key."""
        options, place = _parsed(url)
        try:
            async with await AsyncConnection.connect(**options) as connection:
                await _set_up(connection, schema, read_only=read_only, by_key=by_key)
                await _require_utf8(connection, place)
                if read_only:
                    await _check_format(connection, schema, migrations, place)
                else:
                    await _bring_up_to_date(connection, schema, migrations, place)
        except psycopg.Error as error:
            raise StartupError(
                f"cannot use {place}: {_text(error)}. Check the URL, the server and its rights"
            ) from error
        database = cls(place, options, schema, read_only=read_only, by_key=by_key, work_seconds=work_seconds)
        await database._pool.open()
        return database

    async def run(self, work: Work[T]) -> T:
        """Gives `work` a connection and the number of times it was begun before. What it leaves open is committed,
        and undone if it raises.

        A lost connection makes it begin again too, also when that was during the commit: work that was done all the
        same must find so by itself.
        """
        for attempt in range(MOST_ATTEMPTS):
            try:
                return await self._once(work, attempt, CONNECTION_SECONDS)
            except (Overtaken, _Lost, *_BEGIN_AGAIN):
                continue
            except PoolTimeout as error:
                raise await self._why_none() from error
            except psycopg.Error as error:
                raise self._translated(error) from error
        raise StorageUnavailable(f"{self._place}: others changed the same documents {MOST_ATTEMPTS} times over")

    async def close(self) -> None:
        await self._pool.close()

    async def check(self) -> None:
        """Raises, soon, when the server does not answer. Where all connections are in use it is asked by another."""
        for attempt in range(MOST_CONNECTIONS + 1):  # after a restart of the server, each finds out for itself
            try:
                await self._once(_ask, attempt, CHECK_SECONDS)
            except _Lost:
                continue
            except PoolTimeout:
                try:
                    await (await AsyncConnection.connect(**self._options)).close()
                except psycopg.Error as error:
                    raise self._translated(error) from error
            except psycopg.Error as error:
                raise self._translated(error) from error
            return

    async def _once(self, work: Work[T], attempt: int, wait_seconds: float) -> T:
        seconds = WORK_SECONDS if self._longest_work is None else self._longest_work
        async with self._pool.connection(wait_seconds) as connection:
            try:
                async with asyncio.timeout(seconds):
                    done = await work(connection, attempt)
                    await connection.commit()
                return done
            except TimeoutError as error:
                await connection.close()  # nobody knows what it is still doing
                raise StorageUnavailable(f"{self._place}: no answer within {seconds:g} seconds") from error
            except psycopg.OperationalError as error:
                # The server went away, perhaps long ago, and this connection is the first to notice.
                if connection.closed:
                    raise _Lost from error
                raise

    async def _why_none(self) -> HoldfastError:
        """The pool keeps to itself why it cannot connect, so this tries once by hand."""
        try:
            await (await AsyncConnection.connect(**self._options)).close()
        except psycopg.Error as error:
            return self._translated(error)
        return StorageUnavailable(f"{self._place}: no connection was free within {CONNECTION_SECONDS:g} seconds")

    def _translated(self, error: psycopg.Error) -> HoldfastError:
        text = f"{self._place}: {_text(error)}"
        if isinstance(error, _NEEDS_OPERATOR) or _is_refused(error):
            return Misconfigured(text)
        if isinstance(error, psycopg.DataError | errors.ProgramLimitExceeded | errors.StatementTooComplex):
            return BadInput("rows", f"PostgreSQL cannot store them: {_text(error)}")
        return StorageUnavailable(text)


class _Lost(Exception):
    """The connection ended in the middle of the work."""


async def _ask(connection: AsyncConnection, _: int) -> None:
    await connection.execute("SELECT 1")


# Opening.


def _parsed(url: str) -> tuple[dict[str, Any], str]:
    """What to connect with, and how to call it without its secrets."""
    options = _connection_options(url)
    if options is None:
        raise StartupError(
            "the URL of the PostgreSQL store cannot be read: it must look like "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with other characters than letters and digits as %XX"
        )
    host = options.get("host") or options.get("hostaddr") or "the default host"
    port = f":{options['port']}" if "port" in options else ""
    place = (
        f"PostgreSQL database {options.get('dbname') or options.get('user') or 'of the default user'} at {host}{port}"
    )
    return {**CONNECTION_DEFAULTS, **options, "client_encoding": "utf-8", "autocommit": True}, place


def _connection_options(url: str) -> dict[str, Any] | None:
    # None, and not an error with a cause: libpq quotes what it cannot read, and that may be the password.
    try:
        return conninfo_to_dict(url)
    except psycopg.Error:
        return None


async def _set_up(connection: AsyncConnection, schema: str, *, read_only: bool, by_key: bool) -> None:
    values = {
        "schema": schema,
        "read_only": "on" if read_only else "off",
        "scans": "off" if by_key else "on",
        "plans": "auto" if by_key else "force_custom_plan",
    }
    await connection.execute(SET_UP, values)


async def _require_utf8(connection: AsyncConnection, place: str) -> None:
    encoding = await _value(connection, sql.SQL(FIND_ENCODING))
    if encoding != "UTF8":
        raise StartupError(f"cannot use {place}: its encoding is {encoding}. Create a database with ENCODING 'UTF8'")


async def _bring_up_to_date(connection: AsyncConnection, schema: str, migrations: Migrations, place: str) -> None:
    """Creates nothing that is there: an account that may only read and write rows can open a finished schema."""
    async with connection.transaction():
        await connection.execute(LOCK_FORMAT, (schema,))
        exists, has_format = await _find_schema(connection, schema)
        if not exists:
            await connection.execute(sql.SQL(CREATE_SCHEMA).format(sql.Identifier(schema)))
        if not has_format:
            await connection.execute(CREATE_FORMAT)
        version = await _format(connection, schema, migrations, place)
        try:
            for statements in migrations.statements[version:]:
                await connection.execute(statements.encode())
        except errors.DuplicateTable as error:
            raise CorruptData(f"{place}: the schema {schema} belongs to another program ({_text(error)})") from error
        if version < migrations.version:
            await connection.execute(SET_FORMAT, (migrations.version,))


async def _check_format(connection: AsyncConnection, schema: str, migrations: Migrations, place: str) -> None:
    _, has_format = await _find_schema(connection, schema)
    if not has_format:
        raise NotFound(f"there is no schema {schema} of Holdfast in {place}: `holdfast up` makes one")
    await _format(connection, schema, migrations, place)


async def _format(connection: AsyncConnection, schema: str, migrations: Migrations, place: str) -> int:
    version: int = await _value(connection, sql.SQL(FIND_FORMAT).format(sql.Identifier(schema)))
    if version > migrations.version:
        raise NewerData(
            f"{place} was written by a newer Holdfast (format {version}, this one knows {migrations.version}). "
            "Use that version, or another database"
        )
    return version


async def _find_schema(connection: AsyncConnection, schema: str) -> tuple[bool, bool]:
    row = await (await connection.execute(FIND_SCHEMA, {"schema": schema})).fetchone()
    assert row
    return row[0], row[1]


async def _value(connection: AsyncConnection, query: sql.SQL | sql.Composed) -> Any:
    row = await (await connection.execute(query)).fetchone()
    assert row
    return row[0]


# Errors.


def _text(error: psycopg.Error) -> str:
    """In one line. Only the server's first one: the details quote rows."""
    primary = error.diag.message_primary
    return primary or " ".join(str(error).split()) or type(error).__name__


def _is_refused(error: psycopg.Error) -> bool:
    return error.sqlstate is None and any(words in str(error) for words in _REFUSALS)
