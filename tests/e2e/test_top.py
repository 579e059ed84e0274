"""`holdfast top` as people and scripts use it: on a real terminal, in a pipe, with the server away and back."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.support.process import STOP_SECONDS, Launcher, Running
from tests.support.terminal import Terminal, visible_only
from tests.support.waiting import eventually

SECONDS = 30.0
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def up(shared_launcher: Launcher) -> Running:
    up = shared_launcher.up()
    assert shared_launcher.run("demo", "--broker", up.broker, "--url", up.url).returncode == 0
    return up


@pytest.fixture
def on_screen(up: Running, launcher: Launcher) -> Iterator[Terminal]:
    with Terminal("top", "--url", up.url, "--interval", "0.2", cwd=launcher.cwd) as terminal:
        wait_for(terminal, "SUBSCRIPTION")
        yield terminal


def wait_for(terminal: Terminal, text: str) -> list[str]:
    def look() -> list[str]:
        lines = terminal.screen()
        assert text in "\n".join(lines), lines
        return lines

    return eventually(look, SECONDS)


def gone(terminal: Terminal, text: str) -> None:
    eventually(lambda: terminal.screen() and text not in "\n".join(terminal.screen()), SECONDS)


def assert_left_as_found(terminal: Terminal, code: int = 0) -> None:
    eventually(lambda: terminal.process.poll() is not None, STOP_SECONDS)
    assert terminal.process.returncode == code
    assert terminal.settings() == terminal.before
    sent = terminal.sent
    assert sent.count(SECOND_SCREEN) == sent.count(FIRST_SCREEN) >= 1
    assert sent.rindex(FIRST_SCREEN) > sent.rindex(SECOND_SCREEN)
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")  # the cursor


# On a terminal.


def test_it_shows_every_part_and_goes_on(on_screen: Terminal) -> None:
    lines = wait_for(on_screen, "c4d91a72")
    shown = "\n".join(lines)
    for part in ("holdfast up", "10 subscriptions", "system.events.materializer", "DECODE_ERROR 1", "q:quit"):
        assert part in shown
    pictures = on_screen.sent.count("\x1b[H")
    eventually(lambda: on_screen.sent.count("\x1b[H") > pictures + 3, SECONDS)


def test_keys(on_screen: Terminal) -> None:
    on_screen.press("n")
    wait_for(on_screen, "by name")
    on_screen.press("/ticks")
    wait_for(on_screen, "filter: ticks_")
    gone(on_screen, "trade-signals.materializer")
    on_screen.press("\r")
    wait_for(on_screen, "filter 'ticks'")
    on_screen.press("\x1b")
    wait_for(on_screen, "trade-signals.materializer")
    on_screen.press("p")
    wait_for(on_screen, "PAUSED")
    on_screen.press("p")
    gone(on_screen, "PAUSED")
    on_screen.press("q")
    assert_left_as_found(on_screen)


@pytest.mark.parametrize(("columns", "lines"), [(60, 15), (200, 50), (20, 5)])
def test_it_fits_when_the_terminal_changes_its_size(on_screen: Terminal, columns: int, lines: int) -> None:
    on_screen.resize(columns, lines)

    def fits() -> bool:
        shown = on_screen.screen()
        return len(shown) == lines and max(map(len, shown)) <= columns

    eventually(fits, SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(on_screen: Terminal, number: signal.Signals) -> None:
    on_screen.process.send_signal(number)
    assert_left_as_found(on_screen)


def test_ctrl_c(on_screen: Terminal) -> None:
    on_screen.press("\x03")
    assert_left_as_found(on_screen)


def test_ctrl_z_gives_the_terminal_back_and_takes_it_again(on_screen: Terminal) -> None:
    on_screen.press("\x1a")
    eventually(lambda: on_screen.sent.endswith(FIRST_SCREEN), SECONDS)
    assert on_screen.settings() == on_screen.before
    on_screen.process.send_signal(signal.SIGCONT)
    eventually(lambda: on_screen.sent.count(SECOND_SCREEN) == 2, SECONDS)
    on_screen.press("q")
    assert_left_as_found(on_screen)


def test_a_crash_leaves_the_terminal_as_it_was_too(up: Running, launcher: Launcher) -> None:
    """Its own mistake, planted: an answer that nobody thought of."""
    planted = launcher.cwd / "sitecustomize.py"
    planted.write_text(
        "import holdfast.cli.top.command as command\n"
        "def broken(*args): raise RuntimeError('planted')\n"
        "command.picture = (lambda before: lambda histories: before(histories) if not histories[0].now else broken())"
        "(command.picture)\n"
    )
    os.environ["PYTHONPATH"] = str(launcher.cwd)
    try:
        with Terminal("top", "--url", up.url, cwd=launcher.cwd) as terminal:
            assert_left_as_found(terminal, code=1)
            assert "planted" in terminal.sent[terminal.sent.rindex(FIRST_SCREEN) :]
    finally:
        del os.environ["PYTHONPATH"]


def test_a_server_that_goes_and_comes_back(launcher: Launcher) -> None:
    first = launcher.up()
    port, broker_port = first.url.rpartition(":")[2], first.broker.rpartition(":")[2]
    with Terminal("top", "--url", first.url, "--interval", "0.2", cwd=launcher.cwd, columns=150) as terminal:
        wait_for(terminal, "SUBSCRIPTION")
        first.kill()
        wait_for(terminal, "does not answer: Connection refused; trying again")
        gone(terminal, "SUBSCRIPTION")  # what it said last is not told as now
        second = launcher.start("up", "--port", port, "--broker-port", broker_port).wait_until_up()
        assert launcher.run("demo", "--broker", second.broker, "--url", second.url).returncode == 0
        wait_for(terminal, "DECODE_ERROR 1")
        gone(terminal, "does not answer")
        assert not re.search(r" -\d", "\n".join(terminal.screen()))  # no rate below 0
        terminal.press("q")
        assert_left_as_found(terminal)


# For scripts.


def test_without_a_terminal_it_prints_one_plain_picture(up: Running, launcher: Launcher) -> None:
    done = launcher.run("top", "--url", up.url, "--interval", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    assert visible_only(done.stdout)
    assert "system.events.materializer.dlq.desk" in done.stdout
    assert "q:quit" not in done.stdout


def test_json_has_all_of_it(up: Running, launcher: Launcher) -> None:
    done = launcher.run("top", "--url", up.url, "--interval", "0.1", "--json", "--filter", "ticks", "--sort", "name")
    found = json.loads(done.stdout)
    assert [row["name"].rpartition("/")[2] for row in found["subscriptions"]] == [
        "market-ticks.materializer",
        "market-ticks.materializer.dlq.desk",
    ]
    first = found["subscriptions"][0]
    assert (first["backlog"], first["deadLettered"], first["push"]["state"]) == (0, 0, "idle")
    assert found["processes"][0]["part"] == "up"
    assert found["desk"]["reasons"] == {"DECODE_ERROR": 1, "SCHEMA_VALIDATION_ERROR": 1}
    assert {row["topic"]: row["handled"] for row in found["consumers"]}["system.events"] == 5
    assert len(found["desk"]["openGroups"]) == 2


def test_parts_that_run_alone_are_one_picture(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    env = {"PUBSUB_EMULATOR_HOST": broker.broker}
    desk = launcher.part("desk", env=env)
    consume = launcher.part("consume", "--pull", "system.events.materializer", env=env)
    urls = (f"http://{broker.broker}", desk.url, consume.url)
    flags = [flag for url in urls for flag in ("--url", url)]
    found = json.loads(launcher.run("top", *flags, "--interval", "0.1", "--json").stdout)
    assert [one["part"] for one in found["processes"]] == ["broker", "desk", "consume"]
    assert found["subscriptions"]
    assert found["desk"] is not None
    assert found["work"] is not None


def test_nobody_there(launcher: Launcher) -> None:
    done = launcher.run("top", "--url", "http://127.0.0.1:1", "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "holdfast: no Holdfast answers at http://127.0.0.1:1: Connection refused. Is it up?\n"


@pytest.mark.parametrize("flags", [["--url", "nonsense"], ["--url", "ftp://127.0.0.1"], ["--interval", "0"]])
def test_what_cannot_be_asked_is_said_in_one_line(launcher: Launcher, flags: list[str]) -> None:
    done = launcher.run("top", "--once", *flags)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1
