"""`holdfast torture`: a short run with every kind of fault finds nothing, and a sick Holdfast makes it end with 1."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.errors import BadInput
from holdfast.torture import parts, run, schedule
from holdfast.torture.checker import CHECKS, Verdict, Violation
from holdfast.torture.history import read_history
from holdfast.torture.report import NO_FAULT, rows, to_json
from holdfast.torture.run import Asked, Result
from holdfast.torture.schedule import Fault
from tests.support.process import HOLDFAST, environment
from tests.support.waiting import eventually

RUN_SECONDS = 110.0
SEED, SECONDS = 102, 14.0  # all kinds of faults have a turn


def command(*args: str) -> Any:
    return CliRunner().invoke(cli, ["torture", *args])


def test_a_short_run_with_all_faults_finds_nothing(tmp_path: Path) -> None:
    """PostgreSQL is left to longer runs: starting it takes as long as all the rest. The user's own settings, with which
    no part could start, are not the lab's."""
    (tmp_path / "holdfast.toml").write_text('[broker]\nstorage = "oracle://production"\n[nonsense]\nx = 1\n')
    done = subprocess.run(
        [HOLDFAST, "torture", "--seed", str(SEED), "--minutes", str(SECONDS / 60), "--no-postgres", "--json"],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_SECONDS,
        check=False,
    )
    told = json.loads(done.stdout or "null")
    assert (done.returncode, told and told["violations"]) == (0, []), done.stdout + done.stderr
    assert done.stderr == ""
    assert told["seed"] == SEED
    assert told["history"] is None
    assert told["notRun"] == {schedule.POSTGRES: "was left out"}
    assert set(told["faults"]) == set(schedule.KINDS) - {schedule.POSTGRES}
    assert told["counts"]["messages"] > 100
    assert told["counts"]["starts"] > len(parts.PARTS)
    assert all(told["lookedAt"].values())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_when_it_is_ended_all_that_it_started_ends_too(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run_folder = tmp_path / "run"
    lab = subprocess.Popen(
        [HOLDFAST, "torture", "--no-postgres", "--keep", run_folder],
        env=environment({}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        broker = eventually(lambda: pid_of_the_broker(run_folder / "history.ndjson"), RUN_SECONDS)
        assert is_running(broker)
        lab.send_signal(number)
        assert lab.wait(RUN_SECONDS) == code
    finally:
        lab.kill()
        lab.wait()
    eventually(lambda: not is_running(broker))


def pid_of_the_broker(history: Path) -> int:
    """Once it is up; 0 until then."""
    entries = read_history(history) if history.exists() else []
    up = any(entry["what"] == "up" for entry in entries)
    return next((int(entry["pid"]) for entry in entries if entry["what"] == "started"), 0) if up else 0


def is_running(pid: int) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not told.partition(") ")[2].startswith("Z")


def test_a_seed_tells_its_faults() -> None:
    told = json.loads(command("--seed", "5", "--minutes", "1", "--plan", "--json").stdout)
    assert told["seed"] == 5
    assert len(told["faults"]) == len(schedule.make_schedule(5, 60))
    shown = command("--seed", "5", "--minutes", "1", "--plan").stdout.splitlines()
    assert len(shown) == len(told["faults"]) + 2
    assert any(line.endswith("directions up and down") for line in shown)
    assert not any(word in line for line in shown for word in ("[", "True", "False"))


def test_only_one_kind() -> None:
    told = json.loads(command("--seed", "5", "--plan", "--fault", "power cut", "--json").stdout)
    assert {fault["fault"] for fault in told["faults"]} == {"power cut"}


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = command("--keep", str(tmp_path))
    assert done.exit_code == 1
    assert "is not empty" in str(done.exception)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command("--keep", str(tmp_path / "file" / "run"))
    assert isinstance(done.exception, BadInput)
    assert str(done.exception) == f"--keep: {tmp_path}/file/run: Not a directory"


def result_with(*violations: Violation, tmp_path: Path) -> Result:
    faults = [
        Fault(1, 5.0, 1.0, schedule.KILL, parts.BROKER),
        Fault(2, 20.0, 5.0, schedule.FREEZE, parts.DESK),
    ]
    verdict = Verdict(list(violations), dict.fromkeys(CHECKS, 12))
    not_run = {schedule.POSTGRES: "needs PostgreSQL"}
    return Result(Asked(1, 60.0), faults, not_run, verdict, {}, 60.0, tmp_path / "history.ndjson")


def test_the_table_has_what_was_found_by_the_fault_that_was_nearest(tmp_path: Path) -> None:
    result = result_with(
        Violation("lost", "a", 7.0), Violation("lost", "b", 22.0), Violation("stuck", "c", 60.0), tmp_path=tmp_path
    )
    table = {row[0]: row[1:] for row in rows(result)}
    assert table[schedule.KILL] == [1, 1, 0, 0, 0, 0, 0]
    assert table[schedule.FREEZE] == [1, 1, 0, 0, 0, 0, 1]
    assert table[schedule.POSTGRES][0] == "not run: needs PostgreSQL"
    assert table["all"] == [2, 2, 0, 0, 0, 0, 1]
    assert table["looked at"] == ["", *["12"] * 6]
    assert NO_FAULT not in table
    assert [one["nearestFault"] for one in to_json(result)["violations"]] == [
        schedule.KILL,
        schedule.FREEZE,
        schedule.FREEZE,
    ]


def test_what_this_machine_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "has_disk", lambda: False)
    monkeypatch.setattr("holdfast.torture.postgres.find_binaries", lambda: None)
    told = run.not_run(Asked(1, 60.0))
    assert set(told) == {schedule.DISK_FULL, schedule.SYNC_ERROR, schedule.POWER_CUT, schedule.POSTGRES}
    assert all(why.startswith("needs") for why in told.values())
