"""`--help` of every command, and what the command line says about itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import SECTIONS, cli
from tests.support.process import Launcher

WIDEST = 100

cli.load_all()


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


ALL = dict(commands())


def help_of(path: tuple[str, ...], option: str = "--help") -> str:
    done = CliRunner().invoke(cli, [*path, option], prog_name="holdfast", terminal_width=WIDEST)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...]) -> None:
    text = help_of(path)
    assert text == help_of(path, "-h")
    assert text.startswith(f"Usage: {' '.join(['holdfast', *path])} ")
    assert max(map(len, text.splitlines())) <= WIDEST
    command = ALL[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.opts} says nothing"
            assert all(option in text for option in parameter.opts)


@pytest.mark.parametrize("path", [path for path, command in ALL.items() if path and isinstance(command, click.Group)])
def test_a_list_of_commands_cuts_no_sentence(path: tuple[str, ...]) -> None:
    listed = help_of(path).partition("\nCommands:\n")[2]
    assert listed
    assert "..." not in listed


def test_the_first_page_lists_every_command_and_where_to_start() -> None:
    text = help_of(())
    assert {name for section in SECTIONS.values() for name in section} == set(cli.commands)
    assert [title for title in SECTIONS if f"{title}:" in text] == list(SECTIONS)
    for name, command in cli.commands.items():
        first_words = " ".join((command.help or "").split()[:3])
        assert any(line.split()[:1] == [name] and first_words in line for line in text.splitlines()), name
    for hint in ("holdfast up", "holdfast demo", "holdfast.toml", "docs/settings.md"):
        assert hint in text


def test_every_command_that_prints_can_print_json() -> None:
    """All but those that run until they are told to stop, and the one that prints nothing else."""
    running = {(name,) for name in SECTIONS["Run"]}
    without = {
        path
        for path, command in ALL.items()
        if not isinstance(command, click.Group) and not any("--json" in one.opts for one in command.params)
    }
    assert without == running | {("failures", "export")}


def test_as_a_program(launcher: Launcher) -> None:
    version = launcher.run("--version")
    assert (version.returncode, version.stdout) == (0, f"holdfast, version {holdfast.__version__}\n")
    help_page = launcher.run("--help")
    assert (help_page.returncode, help_page.stderr) == (0, "")
    assert help_page.stdout.startswith("Usage: holdfast ")
    # Without a command: the same page, but as an answer to a mistake.
    nothing = launcher.run()
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr == help_page.stdout
    assert not launcher.data.exists()


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("nope",), ["nope", "holdfast --help"]),
        (("docs", "nope"), ["nope", "holdfast docs --help"]),
        (("docs", "get"), ["PATH", "holdfast docs get --help"]),
        (("docs", "get", "no-slash"), ["PATH", "collection/id", "'no-slash'"]),
        (("failures", "show", "x"), ["ID", "'x'", "holdfast failures show --help"]),
        (("failures", "list", "--limit", "0"), ["--limit", "1<=x<=1000"]),
        (("docs", "list", "--data", "nowhere"), ["nowhere/documents.db", "--data", "holdfast up"]),
        (("failures", "show", "1", "--data", "nowhere"), ["nowhere/failures.db", "--data", "holdfast up"]),
        (("docs", "list", "--url", "http://127.0.0.1:1"), ["http://127.0.0.1:1", "Is it up?"]),
        (("docs", "list", "--url", "nonsense"), ["nonsense"]),
        (("docs", "list", "--store", "memory:"), ["consumer.store", "--url"]),
        (("failures", "list", "--failures", "redis://x"), ["desk.failures", "redis://x", "sqlite:///"]),
        (("docs", "get", "a/\x1b[31mb", "--data", "nowhere"), ["nowhere"]),
    ],
)
def test_a_mistake_is_one_line(launcher: Launcher, args: tuple[str, ...], parts: list[str]) -> None:
    done = launcher.run(*args)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.removesuffix("\n").isprintable()
    for part in parts:
        assert part in done.stderr
    assert list(launcher.cwd.iterdir()) == []


def test_where_to_find_help_is_a_sentence_of_its_own(launcher: Launcher) -> None:
    done = launcher.run("ingest", "topic", "absent.json")
    assert done.returncode == 2
    assert done.stderr == (
        "holdfast: Invalid value for 'FILE': 'absent.json': No such file or directory. Try `holdfast ingest --help`\n"
    )
