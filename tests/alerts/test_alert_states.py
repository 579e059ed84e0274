"""What the evaluator keeps for a restart, in its real file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from holdfast.alerts.alert import Severity
from holdfast.alerts.states import Kept, Series, Snapshot, State, Subject
from holdfast.stores.sqlite import alert_states as module
from holdfast.stores.sqlite.alert_ledger import SqliteAlertLedger
from holdfast.stores.sqlite.alert_states import SqliteAlertStates
from holdfast.stores.sqlite.alerts_schema import SCHEMA
from holdfast.stores.sqlite.database import Database

A = Series("holdfast_a_total", ("orders", "x"))
B = Series("holdfast_b", ())
PENDING = {Subject("One", Severity.WARNING, (("subscription", "orders"), ("zone", "é"))): State(10)}
FIRING = {Subject("Two", Severity.CRITICAL, ()): State(20, 30, 4.5)}

Step = tuple[Snapshot, Mapping[Subject, State], int]


async def reloaded(path: Path) -> Kept:
    database = await Database.open(path, SCHEMA)
    try:
        return await SqliteAlertStates(database).load()
    finally:
        await database.close()


async def saved(path: Path, *steps: Step) -> Kept:
    """What a new process finds."""
    database = await Database.open(path, SCHEMA)
    store = SqliteAlertStates(database)
    await store.load()
    for step in steps:
        await store.save(*step)
    await database.close()
    return await reloaded(path)


async def test_a_new_file_knows_nothing(tmp_path: Path) -> None:
    assert await saved(tmp_path / "alerts.db") == Kept([], {})


async def test_everything_returns_as_it_was(tmp_path: Path) -> None:
    first, second = Snapshot(100, {A: 1.5}), Snapshot(200, {A: 2.0, B: 0.0})
    path = tmp_path / "alerts.db"
    assert await saved(path, (first, PENDING, 0), (second, {**PENDING, **FIRING}, 0)) == Kept(
        [first, second], {**PENDING, **FIRING}
    )
    third = Snapshot(300, {B: 1.0, A: 3.0})
    assert await saved(path, (third, FIRING, 200)) == Kept([second, third], FIRING)
    assert (await saved(path, (Snapshot(400, {}), {}, 400))).states == {}


async def test_what_lies_ahead_of_a_clock_that_was_set_back_is_forgotten(tmp_path: Path) -> None:
    steps: list[Step] = [(Snapshot(time_ns, {A: float(time_ns)}), {}, 0) for time_ns in (100, 200, 150)]
    kept = await saved(tmp_path / "alerts.db", *steps)
    assert [snapshot.time_ns for snapshot in kept.snapshots] == [100, 150]


async def test_series_that_are_gone_do_not_pile_up(tmp_path: Path) -> None:
    module_spare = module.SPARE_SERIES
    steps: list[Step] = [
        (Snapshot(round_, {Series("holdfast_b", (f"{round_}-{number}",)): 1.0 for number in range(400)}), {}, 0)
        for round_ in range(10)
    ]
    await saved(tmp_path / "alerts.db", *steps)
    database = await Database.open(tmp_path / "alerts.db", SCHEMA)
    count = await database.read(lambda connection: connection.execute("SELECT count(*) FROM alert_series").fetchone())
    await database.close()
    assert count[0] <= 800 + module_spare


async def test_a_file_of_the_first_format_is_brought_forward(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    database = await Database.open(path, replace(SCHEMA, migrations=SCHEMA.migrations[:1]))
    store = SqliteAlertStates(database)
    await store.load()
    await store.save(Snapshot(5, {B: 1.0}), FIRING, 0)
    await database.close()
    assert (await reloaded(path)).states == FIRING
    database = await Database.open(path, SCHEMA)
    assert (await SqliteAlertLedger(database).load()).alerts == {}
    await database.close()
