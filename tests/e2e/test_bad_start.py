"""What cannot start says so in one line that names what is wrong and what to do, and touches no data."""

from __future__ import annotations

import os
import random
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.files import DATABASES, is_settled, rows, snapshot
from tests.support.process import FREE_PORTS, Launcher
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

UP = ("up", *FREE_PORTS)

Damage = Callable[[Path], None]


def assert_refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode not in (0, None)
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def refuse(
    launcher: Launcher,
    args: Sequence[str],
    *parts: str,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> None:
    """Runs it, expects one line with all of `parts`, and compares every file of its directory."""
    untouched = snapshot(launcher.cwd)
    done = launcher.run(*args, env=env, before=before)
    assert_refused(done, *parts)
    assert snapshot(launcher.cwd) == untouched


@pytest.fixture(scope="module")
def made(shared_launcher: Launcher) -> Path:
    """A data directory with something in each of its files, cleanly stopped."""
    up = shared_launcher.up()
    fill(up.broker, shared_launcher.data)
    assert up.stop() == 0
    return shared_launcher.data


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, but killed: what was written last is still in the -wal files."""
    with Launcher(tmp_path_factory.mktemp("cut-off")) as launcher:
        up = launcher.up()
        fill(up.broker, launcher.data)
        up.kill()
        return launcher.data


def fill(broker: str, data: Path) -> None:
    with Pubsub(broker) as pubsub:
        events = [{"service": f"service-{number}", "note": "x" * 200} for number in range(100)]
        ids = pubsub.publish("system.events", *events, *[b"<not JSON>" * 20] * 50)
    eventually(lambda: all(is_settled(data, "system.events.materializer", message_id) for message_id in ids))
    eventually(lambda: rows(data / "failures.db", "SELECT count(*) FROM failed_messages") == [(50,)])


@pytest.fixture
def with_data(launcher: Launcher, made: Path) -> Launcher:
    shutil.copytree(made, launcher.data)
    return launcher


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


# Ports.


@pytest.mark.parametrize(
    "args",
    [
        ("up", "--port", "0", "--broker-port"),
        ("up", "--broker-port", "0", "--port"),
        ("broker", "--port"),
        ("consume", "--port"),
        ("desk", "--port"),
    ],
    ids=" ".join,
)
def test_a_taken_port(with_data: Launcher, taken_port: int, args: Sequence[str]) -> None:
    refuse(
        with_data,
        [*args, str(taken_port)],
        f"cannot listen on 127.0.0.1:{taken_port}",
        "Stop the other process, or choose another port",
    )


def test_a_taken_port_makes_no_data_directory(launcher: Launcher, taken_port: int) -> None:
    refuse(launcher, ["up", "--port", "0", "--broker-port", str(taken_port)], str(taken_port))
    assert not launcher.data.exists()


def test_a_port_that_another_up_has(with_data: Launcher, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both of its servers keep others out, also from the same port by way of SO_REUSEPORT."""
    with Launcher(tmp_path_factory.mktemp("other")) as other:
        up = other.up()
        for option, address in (("--broker-port", up.broker), ("--port", up.url)):
            port = address.rsplit(":", 1)[1]
            refuse(with_data, [*UP, option, port], f"cannot listen on 127.0.0.1:{port}")


def test_an_address_that_is_not_ours(with_data: Launcher) -> None:
    refuse(with_data, [*UP, "--host", "192.0.2.1"], "cannot listen on 192.0.2.1:0", "choose another")


# The data directory.


def test_the_data_directory_is_a_file(launcher: Launcher) -> None:
    (launcher.cwd / "data").write_text("mine")
    refuse(launcher, [*UP, "--data", "data"], "cannot use the data directory data", "--data")


@pytest.fixture
def unprivileged() -> Sequence[str]:
    """What to put before a command so that file rights count for it, whoever runs the tests."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root may write everywhere, and there is no setpriv (util-linux) to take that right away")
    return (setpriv, "--inh-caps=-all", "--bounding-set=-all")


@pytest.fixture
def read_only(launcher: Launcher) -> Iterator[Path]:
    directory = launcher.cwd / "read-only"
    directory.mkdir()
    yield directory
    directory.chmod(0o755)  # or pytest could not remove it


@pytest.mark.parametrize("inside", ["", "new"])
def test_an_unwritable_data_directory(
    launcher: Launcher, unprivileged: Sequence[str], read_only: Path, inside: str
) -> None:
    read_only.chmod(0o555)
    refuse(
        launcher,
        [*UP, "--data", str(read_only / inside)],
        f"cannot use the data directory {read_only}",
        "Permission denied",
        "--data",
        before=unprivileged,
    )


def test_an_unwritable_directory_with_data(
    launcher: Launcher, unprivileged: Sequence[str], read_only: Path, made: Path
) -> None:
    shutil.copytree(made, read_only, dirs_exist_ok=True)
    for path in [*read_only.iterdir(), read_only]:
        path.chmod(0o555)
    refuse(launcher, [*UP, "--data", str(read_only)], str(read_only), "rights", before=unprivileged)


@pytest.mark.parametrize("name", DATABASES)
def test_an_unwritable_file(with_data: Launcher, unprivileged: Sequence[str], name: str) -> None:
    (with_data.data / name).chmod(0o444)
    refuse(with_data, UP, name, "rights", before=unprivileged)


@pytest.mark.parametrize("name", DATABASES)
def test_an_unreadable_file(with_data: Launcher, unprivileged: Sequence[str], name: str) -> None:
    (with_data.data / name).chmod(0)
    assert_refused(with_data.run(*UP, before=unprivileged), name, "Permission denied", "rights")


@pytest.mark.parametrize("args", [UP, *((part, "--port", "0") for part in ("broker", "consume", "desk"))], ids=" ".join)
def test_a_second_process_on_the_same_data(with_data: Launcher, args: Sequence[str]) -> None:
    running = with_data.up()
    refuse(with_data, args, "in use by another Holdfast", f"process {running.process.pid}", "--data")
    assert running.process.poll() is None


@pytest.mark.parametrize("name", DATABASES)
def test_data_of_a_newer_version(with_data: Launcher, name: str) -> None:
    with closing(sqlite3.connect(with_data.data / name)) as connection:
        connection.execute("PRAGMA user_version = 99")
    refuse(with_data, UP, name, "written by a newer Holdfast", "format 99", "Use that version, or another --data")


@pytest.mark.parametrize("name", DATABASES)
def test_data_of_another_program(with_data: Launcher, name: str) -> None:
    other = DATABASES[DATABASES.index(name) - 1]
    shutil.copyfile(with_data.data / other, with_data.data / name)
    refuse(with_data, UP, name, "another part of Holdfast", "move it away")


# Damage.


def garbage_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database at all, just text")


def page_in_the_middle(path: Path) -> None:
    size, page = path.stat().st_size, 4096
    assert size >= 5 * page
    with path.open("r+b") as file:
        file.seek(size // page // 2 * page)
        file.write(random.Random(7).randbytes(page))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def only_a_few_bytes(path: Path) -> None:
    os.truncate(path, 50)


def bytes_inside_a_row(path: Path) -> None:
    """The database is sound, but a text that it holds is not what was written."""
    content = path.read_bytes()
    at = content.index(b'{"name": "projects/local/subscriptions/')
    path.write_bytes(content[:at] + b"\xff" * 10 + content[at + 10 :])


@pytest.mark.parametrize("name", DATABASES)
@pytest.mark.parametrize("damage", [garbage_header, page_in_the_middle, truncated, only_a_few_bytes])
def test_a_damaged_file(with_data: Launcher, name: str, damage: Damage) -> None:
    damage(with_data.data / name)
    refuse(with_data, UP, f"{name} is damaged", "Restore it from a backup, or move it away")


def test_a_damaged_row(with_data: Launcher) -> None:
    bytes_inside_a_row(with_data.data / "broker.db")
    refuse(with_data, UP, "broker.db is damaged", "Restore it from a backup, or move it away")


@pytest.mark.parametrize("name", DATABASES)
def test_one_damaged_file_after_a_kill_leaves_the_others_as_they_were(
    launcher: Launcher, cut_off: Path, name: str
) -> None:
    shutil.copytree(cut_off, launcher.data)
    assert any(path.name.endswith("-wal") and path.stat().st_size for path in launcher.data.iterdir())
    garbage_header(launcher.data / name)
    refuse(launcher, UP, f"{name} is damaged")


def test_looking_at_damaged_data(with_data: Launcher) -> None:
    """The commands that only read are as careful."""
    garbage_header(with_data.data / "documents.db")
    garbage_header(with_data.data / "failures.db")
    refuse(with_data, ["docs", "list"], "documents.db is damaged")
    refuse(with_data, ["failures", "list"], "failures.db is damaged")


# Settings.


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        ({"HOLDFAST_BROKER_PROT": "8085"}, ["HOLDFAST_BROKER_PROT", "'8085'", "did you mean HOLDFAST_BROKER_PORT?"]),
        ({"HOLDFAST_COLOUR": "blue"}, ["HOLDFAST_COLOUR", "'blue'", "no such setting", "docs/settings.md"]),
        ({"PORT": "abc"}, ["PORT", "'abc'", "must be a whole number"]),
        ({"PORT": "99999"}, ["PORT", "'99999'", "must be from 0 to 65535"]),
        ({"HOLDFAST_HTTP_PORT": "-1"}, ["HOLDFAST_HTTP_PORT", "'-1'", "must be from 0 to 65535"]),
        ({"HOLDFAST_BROKER_STRICT": "maybe"}, ["HOLDFAST_BROKER_STRICT", "'maybe'", "true or false"]),
        ({"SUBSCRIPTION_TOPIC_MAP": "{"}, ["SUBSCRIPTION_TOPIC_MAP", "'{'", "must map text to text"]),
        ({"HOLDFAST_CONSUMER_STORE": "mysql://x"}, ["consumer.store", "'mysql://x'", "sqlite:///path"]),
        ({"HOLDFAST_DESK_FAILURES": "x.db"}, ["desk.failures", "'x.db'", "sqlite:///path"]),
        ({"HOLDFAST_DESK_RETRY": '[{"reason": "A", "delay": 5}]'}, ["desk.retry[0].delay", "5", "these are: reason"]),
        ({"HOLDFAST_DESK_SUBSCRIPTIONS": "a b"}, ["HOLDFAST_DESK_SUBSCRIPTIONS", "must be subscription ids"]),
        ({"HOLDFAST_CONFIG": "no-such.toml"}, ["no-such.toml", "there is no such file"]),
    ],
)
def test_a_bad_environment(with_data: Launcher, env: Mapping[str, str], parts: Sequence[str]) -> None:
    refuse(with_data, ["up", "--broker-port", "0"], *parts, env=env)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[broker]\nprot = 8085\n", ["broker.prot", "8085", "no such setting", "did you mean broker.port?"]),
        ("colour = 'blue'\n", ["colour", "'blue'", "no such setting", "docs/settings.md"]),
        ("[http]\nport = 'abc'\n", ["http.port", "'abc'", "must be a whole number"]),
        ("[http]\nport = 99999\n", ["http.port", "99999", "must be from 0 to 65535"]),
        ("[broker\nport = 1\n", ["holdfast.toml", "is not valid TOML", "line 1"]),
        ("data = ''\n", ["data", "''", "must not be empty"]),
    ],
)
def test_a_bad_settings_file(with_data: Launcher, text: str, parts: Sequence[str]) -> None:
    (with_data.cwd / "holdfast.toml").write_text(text)
    refuse(with_data, ["up", "--broker-port", "0"], *parts)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--config", "no-such.toml"], ["no-such.toml", "there is no such file"]),
        (["--config", "."], ["'.'", "there is no such file"]),
        (["--port", "99999"], ["http.port", "99999", "must be from 0 to 65535"]),
        (["--port", "abc"], ["--port", "'abc'", "up --help"]),
        (["--prot", "1"], ["--prot", "--port", "up --help"]),
        (["somewhere"], ["somewhere", "up --help"]),
    ],
)
def test_a_bad_command_line(with_data: Launcher, args: Sequence[str], parts: Sequence[str]) -> None:
    refuse(with_data, ["up", *args], *parts)
