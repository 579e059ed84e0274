"""The PostgreSQL document store against its contract on a real server, and what only PostgreSQL can get wrong."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.documents import DocumentStore, Mark, Result, Write
from holdfast.errors import (
    BadInput,
    CorruptData,
    Misconfigured,
    NewerData,
    NotFound,
    StartupError,
    StorageUnavailable,
)
from holdfast.model.outcome import Applied, Duplicate
from holdfast.stores.postgres import database
from holdfast.stores.postgres.documents import MIGRATIONS, PostgresDocumentStore
from holdfast.testing.contracts.documents import (
    NOW,
    WEEK,
    DurableDocumentStoreContract,
    Oracle,
    a_write,
    fields_of,
    one,
)
from tests.support.postgres import PostgresServer, database_url, postgres, running_postgres

__all__ = ["database_url", "postgres"]

SECRET = "pass%word"


class TestPostgresDocuments(DurableDocumentStoreContract):
    url: str
    opened: list[PostgresDocumentStore]

    @pytest.fixture
    async def store(self, database_url: str) -> AsyncIterator[DocumentStore]:
        self.url, self.opened = database_url, []
        yield await self._open()
        for store in self.opened:
            await store.close()

    async def reopened(self, store: DocumentStore) -> DocumentStore:
        await store.close()
        return await self._open()

    async def _open(self) -> PostgresDocumentStore:
        self.opened.append(await PostgresDocumentStore.open(self.url))
        return self.opened[-1]

    @pytest.mark.parametrize("table", ["documents", "marks"])
    async def test_a_failing_transaction_leaves_nothing(
        self, store: DocumentStore, postgres: PostgresServer, table: str
    ) -> None:
        with failing_inserts(postgres, self.url, table), pytest.raises(StorageUnavailable, match="disk on fire"):
            await one(store, a_write(keys=("one", "two")))
        assert await store.get("things", "doc") is None
        assert await store.find_mark([Mark("seen", "one"), Mark("seen", "two")], NOW) is None
        assert isinstance(await one(store, a_write(keys=("one", "two"))), Applied)

    async def test_reading_only_sees_what_another_store_writes(self, store: DocumentStore) -> None:
        reader = await PostgresDocumentStore.read_only(self.url)
        self.opened.append(reader)
        await one(store, a_write(fields={"n": 2}))
        assert await fields_of(reader, "things", "doc") == {"n": 2}
        with pytest.raises(StorageUnavailable, match="reading only"):
            await one(reader, a_write("m3"))
        with pytest.raises(StorageUnavailable, match="reading only"):
            await reader.forget_expired(NOW + 2 * WEEK)

    # What jsonb and text are like.

    async def test_numbers_come_back_as_they_were(self, store: DocumentStore) -> None:
        numbers = [1.0, 1e16, -1.5e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, 1e-7, 2**63 - 1, -(2**63), 0.1]
        fields = {"numbers": numbers, "1e+22": "1e+22", "quoted": 'a \\" 1e+22 "', "deep": {"n": 1e300}}
        await one(store, a_write(fields=fields))
        stored = await fields_of(store, "things", "doc")
        assert stored == fields
        assert [type(number) for number in stored["numbers"]] == [type(number) for number in numbers]

    @pytest.mark.parametrize(
        ("field", "fields"),
        [
            ("note", {"note": "a\0b"}),
            ("a.b", {"fine": 1, "a": {"b": ["x", "\0"]}}),
            ("a", {"a": {"k\0": 1}}),
            ("fields", {"k\0": 1}),
            ("half", {"half": "\ud800"}),
        ],
    )
    async def test_text_that_cannot_be_stored_is_refused_by_its_field(
        self, store: DocumentStore, field: str, fields: dict[str, Any]
    ) -> None:
        with pytest.raises(BadInput, match="PostgreSQL cannot store") as refused:
            await store.apply([a_write("m1", document_id="other"), a_write("m2", fields=fields)])
        assert refused.value.field == field
        assert await store.get("things", "other") is None
        assert isinstance(await one(store, a_write("m2")), Applied)

    async def test_a_backslash_before_u0000_is_just_text(self, store: DocumentStore) -> None:
        await one(store, a_write(fields={"note": "\\u0000", "\\u0000": 1}))
        assert await fields_of(store, "things", "doc") == {"note": "\\u0000", "\\u0000": 1}

    @pytest.mark.parametrize(
        ("name", "write"),
        [
            ("document id", a_write(document_id="a\0b")),
            ("document id", a_write(collection="a\0b")),
            ("document id", a_write(document_id="é" * 750, collection="c" * 1200)),
            ("dedupe mark", a_write(keys=("a\0b",))),
            ("dedupe mark", a_write(keys=("k" * 3000,))),
            ("message id", a_write("a\0b", keys=("fine",), fields={})),
        ],
    )
    async def test_keys_that_cannot_be_stored_are_refused_by_name(
        self, store: DocumentStore, name: str, write: Write
    ) -> None:
        with pytest.raises(BadInput) as refused:
            await one(store, write)
        assert refused.value.field == name

    async def test_the_longest_keys_can_be_stored(self, store: DocumentStore) -> None:
        # Of random letters, for PostgreSQL compresses what repeats.
        chosen = random.Random(1)
        long_id = "".join(chr(chosen.randint(0x4E00, 0x9FFF)) for _ in range(500))
        collection = "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1100))
        await one(store, a_write(document_id=long_id, collection=collection))
        assert await store.get(collection, long_id) is not None

    async def test_what_cannot_exist_is_not_found(self, store: DocumentStore) -> None:
        assert await store.get("things", "a\0b") is None
        assert await store.find_mark([Mark("seen", "a\0b")], NOW) is None
        assert list((await store.list("thi\0ngs", 10)).documents) == []

    async def test_numbers_beyond_64_bits_are_refused(self, store: DocumentStore) -> None:
        with pytest.raises(BadInput, match="out of range"):
            await one(store, a_write(event_time=2**63))

    # Connections.

    async def test_lost_connections_are_replaced_before_anybody_notices(
        self, store: DocumentStore, postgres: PostgresServer
    ) -> None:
        await asyncio.gather(*(one(store, a_write(f"a{n}", document_id=f"a{n}")) for n in range(20)))
        end_connections(postgres)
        assert isinstance(await one(store, a_write("b")), Applied)
        end_connections(postgres)
        assert await store.get("things", "doc") is not None

    # Others at the same time.

    @pytest.mark.parametrize("seed", range(6))
    async def test_two_stores_at_once_end_as_one_by_one(self, store: DocumentStore, seed: int) -> None:
        """The same events many times over, in batches to both stores. Each must count once, in whatever order."""
        chosen = random.Random(seed)
        events = [_event(chosen, number) for number in range(60)]
        batches = [chosen.choices(events, k=chosen.randint(1, 30)) for _ in range(40)] + [events[:30], events[30:]]
        chosen.shuffle(batches)
        stores = [store, await self._open()]
        done = await asyncio.gather(*(stores[at % 2].apply(batch) for at, batch in enumerate(batches)))
        not_duplicate = [
            write.order.message_id
            for batch, results in zip(batches, done, strict=True)
            for write, result in zip(batch, results, strict=True)
            if not isinstance(result, Duplicate)
        ]
        assert sorted(not_duplicate, key=int) == [str(number) for number in range(60)]
        oracle = Oracle()
        for event in events:
            oracle.apply(event)
        for path, fields in oracle.documents.items():
            assert await fields_of(store, *path) == fields

    async def test_an_expired_mark_is_made_anew_by_one_of_many(self, store: DocumentStore) -> None:
        stores = [store, await self._open()]
        await one(store, a_write("m0", keys=("again",), document_id="first"))
        writes = [a_write(f"m{n}", keys=("again",), document_id=f"d{n}", now=NOW + WEEK) for n in range(1, 30)]
        results: Sequence[Result] = await asyncio.gather(*(one(stores[n % 2], w) for n, w in enumerate(writes)))
        assert sorted(result.name for result in results) == ["applied"] + ["duplicate"] * 28
        assert len((await store.list("things", 100)).documents) == 2

    async def test_forgetting_beside_applying_loses_nothing(self, store: DocumentStore) -> None:
        other = await self._open()
        await asyncio.gather(*(one(store, a_write(f"m{n}", keys=(f"k{n}",), document_id=f"d{n}")) for n in range(30)))
        again = [
            [a_write(f"n{n}", keys=(f"k{n}",), document_id=f"d{n}", event_time=200, now=NOW + WEEK)] for n in range(30)
        ]
        forgetting = asyncio.gather(*(other.forget_expired(NOW + WEEK) for _ in range(5)))
        results = await asyncio.gather(*(store.apply(batch) for batch in again))
        await forgetting
        assert all(isinstance(result, Applied) for (result,) in results)
        assert await store.forget_expired(NOW + WEEK) == 0
        assert await store.forget_expired(NOW + 2 * WEEK) == 30


def _event(chosen: random.Random, number: int) -> Write:
    changes = [Upsert("things", f"d{n}", {"n": number}) for n in chosen.sample(range(8), chosen.randint(1, 3))]
    counts = [Count("totals", f"t{n}", {"events": 1}, {"last": number}) for n in range(3) if chosen.random() < 0.3]
    keys = (f"message:{number}", f"event:{number}")
    return a_write(str(number), event_time=chosen.randint(1, 20), changes=(*changes, *counts), keys=keys)


# Restarts.

# The number in each document, and how many marks there are, at one moment.
WHAT_IS_THERE = """
SELECT (SELECT array_agg((fields ->> 'n')::integer ORDER BY id) FROM holdfast.documents),
    (SELECT count(*) FROM holdfast.marks)
"""


async def test_a_killed_server_leaves_nothing_half_done_and_nothing_lost() -> None:
    with running_postgres() as server:
        store = await PostgresDocumentStore.open(server.url())
        applied: list[int] = []
        writing = asyncio.create_task(_write_until(store, 150, applied))
        while len(applied) < 40:
            await asyncio.sleep(0.001)
        server.kill()
        known = len(applied)
        await asyncio.to_thread(server.start)
        # What was acknowledged before is there, and each event's four documents and its mark are there together.
        ((numbers, marks),) = server.execute(WHAT_IS_THERE)
        assert numbers == [marks] * 4
        assert marks >= known
        await writing
        assert [await fields_of(store, "things", name) for name in "abc"] == [{"n": 150}] * 3
        assert await fields_of(store, "things", "total") == {"n": 150}
        assert server.execute(WHAT_IS_THERE) == [([150] * 4, 150)]
        await store.close()


async def _write_until(store: DocumentStore, last: int, applied: list[int]) -> None:
    for number in range(1, last + 1):
        changes: list[Change] = [Upsert("things", name, {"n": number}) for name in "abc"]
        changes.append(Count("things", "total", {"n": 1}))
        write = a_write(f"m{number:04}", event_time=number, changes=tuple(changes))
        while True:
            try:
                await store.apply([write])
                break
            except StorageUnavailable:
                continue
        applied.append(number)


async def test_while_the_server_is_away_the_store_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CONNECTION_SECONDS", 0.2)
    with running_postgres() as server:
        store = await PostgresDocumentStore.open(server.url())
        await one(store, a_write("m1"))
        server.stop()
        with pytest.raises(StorageUnavailable, match="PostgreSQL database postgres at"):
            await one(store, a_write("m2", event_time=200))
        with pytest.raises(StorageUnavailable):
            await store.get("things", "doc")
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(20):
            await _write_until(store, 1, [])
        assert await fields_of(store, "things", "a") == {"n": 1}
        await store.close()


# Opening.


async def test_a_server_that_stops_answering_does_not_hold_a_message_for_ever(
    postgres: PostgresServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WORK_SECONDS", 0.5)
    async with opened(database_url) as store:
        await store.apply([a_write("before")])
        with psycopg.connect(database_url, autocommit=True) as other:
            name = {"name": "holdfast"}
            found = other.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = %(name)s AND state = 'idle'", name
            )
            workers = [row[0] for row in found]
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StorageUnavailable, match="no answer within"):
                await asyncio.wait_for(store.apply([a_write("meanwhile", event_time=150)]), 30)
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
        assert isinstance((await store.apply([a_write("zafter", event_time=200)]))[0], Applied)


async def test_many_may_open_an_empty_database_at_once(database_url: str) -> None:
    opening = (PostgresDocumentStore.open(database_url) for _ in range(8))
    done = await asyncio.gather(*opening, return_exceptions=True)
    stores = [store for store in done if isinstance(store, PostgresDocumentStore)]
    results = await asyncio.gather(*(one(store, a_write()) for store in stores))
    for store in stores:
        await store.close()
    assert len(stores) == 8, done
    assert sorted(result.name for result in results) == ["applied"] + ["duplicate"] * 7


async def test_each_schema_is_a_store_of_its_own(database_url: str) -> None:
    odd = 'Own "schema"'
    async with opened(database_url) as first, opened(database_url, odd) as second:
        assert isinstance(await one(first, a_write()), Applied)
        assert isinstance(await one(second, a_write()), Applied)


async def test_a_newer_format_is_refused(postgres: PostgresServer, database_url: str) -> None:
    async with opened(database_url) as store:
        await one(store, a_write())
    postgres.execute(f"UPDATE holdfast.holdfast_format SET version = {MIGRATIONS.version + 1}", database_url)
    for opening in (PostgresDocumentStore.open, PostgresDocumentStore.read_only):
        with pytest.raises(NewerData, match=f"format {MIGRATIONS.version + 1}, this one knows {MIGRATIONS.version}"):
            await opening(database_url)


async def test_a_schema_of_another_program_is_refused_and_left_alone(
    postgres: PostgresServer, database_url: str
) -> None:
    postgres.execute("CREATE SCHEMA holdfast", database_url)
    postgres.execute("CREATE TABLE holdfast.marks (theirs int)", database_url)
    with pytest.raises(CorruptData, match="another program"):
        await PostgresDocumentStore.open(database_url)
    tables = postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'", database_url)
    assert tables == [("marks",)]


async def test_reading_only_needs_a_schema_and_makes_none(postgres: PostgresServer, database_url: str) -> None:
    with pytest.raises(NotFound, match="holdfast up"):
        await PostgresDocumentStore.read_only(database_url)
    assert postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'holdfast'", database_url) == []


async def test_ids_are_in_the_order_of_code_points_whatever_the_databases_language(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE german TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de'")
    url = postgres.url("german")
    assert postgres.execute("SELECT 'a' < 'Z'", url) == [(True,)]
    ids = ["a", "B", "Z", "é", "ä", "z", "😀", "\ufb01", "10", "9", "_", "-"]
    async with opened(url) as store:
        await store.apply([a_write(f"m-{name}", document_id=name, collection="c") for name in ids])
        await store.apply([a_write(f"n-{name}", document_id="x", collection=name) for name in ids])
        first = await store.list("c", 5)
        rest = await store.list("c", 100, first.next_page_token)
        assert [document.id for document in (*first.documents, *rest.documents)] == sorted(ids)
        assert list(await store.collections()) == sorted([*ids, "c"])


async def test_a_database_that_is_not_utf8_is_refused(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StartupError, match="SQL_ASCII"):
        await PostgresDocumentStore.open(postgres.url("ascii"))


# Rights, and secrets.


async def test_a_database_or_server_that_is_not_there_is_one_clear_line(postgres: PostgresServer) -> None:
    for url in (postgres.url("absent"), "postgresql://x@/x?host=/nowhere"):
        with pytest.raises(StartupError) as refused:
            await PostgresDocumentStore.open(url)
        assert str(refused.value).startswith("cannot use PostgreSQL database ")
        assert "\n" not in str(refused.value)


async def test_rights_that_lack_need_an_operator(postgres: PostgresServer, database_url: str) -> None:
    async with opened(database_url) as store:
        await one(store, a_write())
    with role(postgres, database_url, "reads") as url:
        with pytest.raises(StartupError, match="permission denied"):
            await PostgresDocumentStore.open(url)
        postgres.execute("GRANT USAGE ON SCHEMA holdfast TO reads", database_url)
        postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO reads", database_url)
        async with opened(url) as store:
            assert await fields_of(store, "things", "doc") == {"by": "m1"}
            with pytest.raises(Misconfigured, match="permission denied for table documents"):
                await one(store, a_write("m2"))
            postgres.execute("GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA holdfast TO reads", database_url)
            assert isinstance(await one(store, a_write("m2", event_time=200)), Applied)


async def test_a_password_that_is_wrong_is_never_told(
    postgres: PostgresServer,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setattr(database, "CONNECTION_SECONDS", 0.2)
    told: list[BaseException] = []
    with role(postgres, database_url, "with_password") as url:
        postgres.execute("GRANT CREATE ON DATABASE {} TO with_password".format(url.split("/")[3].split("?")[0]))
        with pytest.raises(StartupError, match="authentication failed") as at_open:
            await PostgresDocumentStore.open(url.replace("word@", "wrong@"))
        told.append(at_open.value)
        async with opened(url) as store:
            await one(store, a_write())
            postgres.execute("ALTER ROLE with_password PASSWORD 'other'")
            end_connections(postgres)
            with pytest.raises(Misconfigured, match="authentication failed") as later:
                await one(store, a_write("m2"))
            told.append(later.value)
    assert "pass" not in " ".join(map(_whole, told)).replace("with_password", "").replace("password auth", "")
    assert SECRET not in caplog.text
    assert "pass%25" not in caplog.text


@pytest.mark.parametrize(
    "url", ["postgresql://u:se%cret@h/d", "postgres//u:secret@h/d", "postgresql://u:secret@h:port/d?secret=1"]
)
async def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(StartupError, match="must look like") as refused:
        await PostgresDocumentStore.open(url)
    assert "cret" not in _whole(refused.value)


# Helpers.


@asynccontextmanager
async def opened(url: str, schema: str = database.DEFAULT_SCHEMA) -> AsyncIterator[PostgresDocumentStore]:
    store = await PostgresDocumentStore.open(url, schema)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def failing_inserts(server: PostgresServer, url: str, table: str) -> Iterator[None]:
    """A fault in the middle of the transaction, made by the server itself."""
    body = "BEGIN RAISE EXCEPTION 'disk on fire'; END"
    server.execute(f"CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $${body}$$", url)
    server.execute(f"CREATE TRIGGER fault AFTER INSERT ON holdfast.{table} EXECUTE FUNCTION fault()", url)
    yield
    server.execute(f"DROP TRIGGER fault ON holdfast.{table}", url)


@contextmanager
def role(server: PostgresServer, url: str, name: str) -> Iterator[str]:
    """Somebody with a password and no rights in the database; gives the URL for them."""
    server.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), SECRET))
    try:
        yield server.url(str(psycopg.conninfo.conninfo_to_dict(url)["dbname"]), name, SECRET)
    finally:
        server.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)), url)
        server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def end_connections(server: PostgresServer) -> None:
    """And waits until they have ended."""
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )


def _whole(error: BaseException | None) -> str:
    """Its text and that of everything behind it."""
    texts = []
    while error is not None:
        texts.append(f"{error!s} {error!r}")
        error = error.__cause__ or error.__context__
    return " ".join(texts)
