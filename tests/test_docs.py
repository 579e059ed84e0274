"""The documentation against the code: what it names exists, what exists is named, and its examples run."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click
import pytest

from holdfast.broker import subscriptions, wire_resources
from holdfast.cli.main import cli
from holdfast.consumer import recent
from holdfast.errors import Unsupported
from holdfast.model import dead_letter_attributes, push_headers
from holdfast.model.failed_message import LEGAL_CHANGES, FailedMessage, FailureStatus
from holdfast.settings import CONFIG_VARIABLE, Known, known_settings, load_settings
from tests.support.process import Launcher, environment
from tests.support.waiting import eventually

cli.load_all()

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
SETTINGS = ROOT / "docs" / "settings.md"


class Block(NamedTuple):
    """A fenced block: `where` is page and line, for the test's name."""

    where: str
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for match in found:
        line = match.string.count("\n", 0, match.start()) + 1
        where = f"{page.relative_to(ROOT)}:{line}"
        yield Block(where, match[2], textwrap.dedent(match[3]))


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def prose(page: Path) -> str:
    """Without the fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def section(page: Path, heading: str) -> str:
    """From a heading to the next one of its level or above."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"{page.name} has no section {heading!r}"
    return match[2]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, but for the rows under the titles."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def by_place(block: Block) -> str:
    return block.where


# Settings.


def settings_rows() -> dict[str, list[str]]:
    found = rows(section(SETTINGS, "All of them"))
    assert found[0] == ["Key", "Environment", "Default", "What it does"]
    return {row[0].strip("`"): row for row in found[1:]}


def test_every_setting_has_a_row_and_every_row_a_setting() -> None:
    assert [*settings_rows()] == [known.key for known in known_settings()]


@pytest.mark.parametrize("known", [*known_settings()], ids=lambda known: known.key)
def test_a_row_says_what_the_code_says(known: Known) -> None:
    _, variables, default, doc = settings_rows()[known.key]
    assert quoted(variables) == [name for name in (known.variable, known.other_variable) if name]
    assert json.loads(default.strip("`")) == json.loads(json.dumps(known.default))
    assert doc == known.doc


def test_the_script_that_writes_the_table_changes_nothing() -> None:
    script = ROOT / "scripts" / "settings-table"
    page = SETTINGS.read_text(encoding="utf-8")
    assert page == load_script(script).with_table(page), f"run {script.relative_to(ROOT)} --write"


def load_script(path: Path) -> ModuleType:
    """A script has no .py at its end, so the loader must be named; and it must leave no cache beside it."""
    loader = importlib.machinery.SourceFileLoader("settings_table", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("block", all_blocks("toml"), ids=by_place)
def test_toml_is_a_settings_file_that_loads(block: Block, tmp_path: Path) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text(block.text, encoding="utf-8")
    load_settings(environ={}, config=config)


def test_variables_that_are_named_exist() -> None:
    known = {known.variable for known in known_settings()} | {CONFIG_VARIABLE}
    for page in PAGES:
        named = set(re.findall(r"\bHOLDFAST_\w*[A-Z]", page.read_text(encoding="utf-8")))
        # The tutorial shows what a misspelt one leads to.
        assert named - known <= {"HOLDFAST_BROKER_PROT"}, page.name


# Commands.


def commands(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")
    else:
        yield path


@pytest.mark.parametrize("command", [*commands(cli, "holdfast")])
def test_every_command_is_mentioned(command: str) -> None:
    told = " ".join(page.read_text(encoding="utf-8") for page in USER_PAGES)
    assert re.search(rf"\b{command}\b", told), f"no page of {[page.name for page in USER_PAGES]} says `{command}`"


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Every `holdfast …` that a reader is told to type, with the arguments that follow."""
    for block in all_blocks("sh", "console"):
        prompt = "$ " if block.language == "console" else ""
        for line in block.text.replace("\\\n", " ").splitlines():
            found = re.match(rf"{re.escape(prompt)}(?:[A-Z_]+=\S+ )*(?:\S*/)?holdfast (.*)", line)
            if found:
                yield f"{block.where} {line}", shlex.split(re.split(r" [|;&>]", found[1])[0], comments=True)


@pytest.mark.parametrize(("line", "arguments"), [*shown_commands()], ids=lambda value: str(value)[:80])
def test_commands_that_are_shown_can_be_typed(line: str, arguments: list[str]) -> None:
    if "--prot" in arguments:  # what a misspelt one leads to
        return
    command: click.Command = cli
    while isinstance(command, click.Group) and not arguments[0].startswith("-"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if arguments not in (["--help"], ["--version"]):
        # Raises UsageError for what does not exist; runs nothing. A command remembers how its help is asked for.
        command.make_context(line, [*arguments], help_option_names=["-h", "--help"])


# Words.


def test_outcomes_are_told_as_the_code_names_them() -> None:
    told = [quoted(row[0])[0] for row in rows(section(ARCHITECTURE, "How handling ends"))[1:]]
    assert sorted(told) == sorted(recent.NAMES)


def test_legal_changes_are_told_as_the_code_has_them() -> None:
    told = rows(section(ARCHITECTURE, "The life of a failed message"))[1:]
    changes = {FailureStatus(quoted(row[0])[0]): {*quoted(row[1])} for row in told}
    assert changes == {status: set(after) for status, after in LEGAL_CHANGES.items()}


def test_the_drawing_of_a_failed_message_is_its_table() -> None:
    [drawing] = [
        block.text for block in blocks(ARCHITECTURE) if block.language == "mermaid" and "replayed" in block.text
    ]
    arrows = re.findall(r"^ +(\w+) --> (\w+): (\w+)", drawing, re.MULTILINE)
    assert {(before, after) for before, after, _ in arrows} == {
        (str(before), str(after)) for before, reachable in LEGAL_CHANGES.items() for after in reachable
    }
    for _, after, change in arrows:
        assert callable(getattr(FailedMessage, change)), f"{change} leads to {after}"


def test_the_drawing_of_a_delivery_is_the_one_in_the_code() -> None:
    assert subscriptions.__doc__ is not None
    drawn = textwrap.dedent("\n".join(line for line in subscriptions.__doc__.splitlines() if line.startswith("    ")))
    assert drawn.strip() in ARCHITECTURE.read_text(encoding="utf-8")


def test_headers_and_attributes_are_told_as_the_code_names_them() -> None:
    told = section(ARCHITECTURE, "Dead-letter now, and strict mode")
    headers = {push_headers.DEAD_LETTER, push_headers.FAILURE_REASON, push_headers.ERROR}
    assert headers == set(re.findall(r"\bHoldfast-[A-Z][A-Za-z-]+", told))
    attributes = {row[0].strip("`") for row in rows(told) if re.match(r"`(Cloud|holdfast-)", row[0])}
    assert attributes == dead_letter_attributes.ALL


def test_failure_reasons_are_told_as_the_code_names_them() -> None:
    sources = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for page in PAGES:
        for word in quoted(prose(page)):
            if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", word) and not word.startswith("HOLDFAST_"):
                assert re.search(rf"\b{word}\b", sources), f"{page.name}: {word}"


def test_names_in_backquotes_exist_in_the_code() -> None:
    sources = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    words = set(re.findall(r"\w+", sources))
    for page in (ROOT / "README.md", ARCHITECTURE):
        for word in quoted(prose(page)):
            if re.fullmatch(r"[a-z]+(_[a-z]+)+|([A-Z][a-z]+){2,}", word):
                assert word in words, f"{page.name}: {word}"


def refused(what: str, field: str) -> bool:
    """Whether a topic, subscription or push config with this field is refused by the field's name."""
    kinds = {"topic": wire_resources.PbTopic, "subscription": wire_resources.PbSubscription}
    message = kinds[what]() if what in kinds else wire_resources.PbSubscription().push_config
    descriptor = message.DESCRIPTOR.fields_by_name[field]
    if descriptor.is_repeated:
        getattr(message, field).add()
    elif descriptor.message_type:
        getattr(message, field).SetInParent()
    else:
        setattr(message, field, "x")
    read = {"topic": wire_resources.topic_from_pb, "subscription": wire_resources.subscription_from_pb}
    try:
        read.get(what, wire_resources.push_from_pb)(message)
    except Unsupported as error:
        return error.field == f"{what}.{field}"
    return False


def test_fields_that_are_said_to_be_missing_are_refused() -> None:
    told = re.findall(r"`(topic|subscription|push_config)\.(\w+)`", section(ROOT / "README.md", "Not there yet"))
    assert told
    assert [f"{what}.{field}" for what, field in told if not refused(what, field)] == []


# Links and paths.


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    for word in quoted(prose(page)):
        if re.fullmatch(r"holdfast(\.\w+)+", word) and word != "holdfast.toml":
            import_dotted(word)
        elif re.fullmatch(r"(src|tests|docs|scripts|bench|requirements)/[\w./-]*", word):
            assert (ROOT / word).exists(), f"{page.name}: {word}"
        elif page == ARCHITECTURE and re.fullmatch(r"[\w/]+(\.py|/)", word):
            assert (ROOT / "src" / "holdfast" / word).exists(), f"{page.name}: {word}"


def import_dotted(name: str) -> None:
    """A module, or a name in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


# Written in pieces, because this file is searched as well.
PACKAGE_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
        ("crates", "io"),
        ("repo", "maven"),
        ("repo1", "maven"),
    )
]
_OWN = "|".join("".join(pieces) for pieces in (("wo", "rk"), ("ro", "ot"), ("ho", "me")))
OWN_DIRECTORIES = re.compile(rf"(?<![\w.~*$}}-])/(?:{_OWN})(?![\w.-])")


def tracked_files() -> list[Path]:
    """What git knows; in a tree without git, everything but what tools leave behind."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not path.relative_to(ROOT).parts[0].startswith(".")]
    return sorted({*found, *PAGES})


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked_files():
        if path.is_file():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_file_names_a_package_registry() -> None:
    found = [f"{path.relative_to(ROOT)}: {host}" for path, text in texts() for host in PACKAGE_HOSTS if host in text]
    assert found == []


def test_no_file_names_a_directory_of_the_machine_it_was_written_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if OWN_DIRECTORIES.search(line)
    ]
    assert found == []


# Examples.


@pytest.mark.parametrize("block", all_blocks("python"), ids=by_place)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.where, "exec")


def readme_example(title: str) -> str:
    """The block of README.md that begins with the comment `# title`."""
    [found] = [block.text for block in blocks(ROOT / "README.md") if block.text.startswith(f"# {title}\n")]
    return found


def test_the_examples_of_the_readme_run(launcher: Launcher) -> None:
    up = launcher.up()
    (launcher.cwd / "shop").mkdir()
    (launcher.cwd / "shop" / "events.py").write_text(readme_example("shop/events.py"), encoding="utf-8")
    clients = {"PUBSUB_EMULATOR_HOST": up.broker}

    client = subprocess.run(
        [sys.executable, "-c", readme_example("orders.py")],
        env=environment(clients),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    printed = client.stdout.splitlines()
    assert re.fullmatch(r"published \d+", printed[0])
    assert printed[1:] == ["""received b'{"number": 17}' {'origin': 'web'}"""]

    consuming = ("shop.events:app", "--pull", "orders.worker", "--data", "shop-data")
    launcher.part("consume", *consuming, env=clients)
    launcher.run("publish", "orders", '{"number": 18, "state": "paid"}', env=clients)

    def document() -> str:
        return launcher.run("docs", "get", "orders/18", "--data", "shop-data").stdout

    assert eventually(document).split() == ["path", "orders/18", "state", "paid"]
