"""docs/alerts.md and the runbook against the table of rules, and what they show against what reads it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from holdfast.alerts.notify import webhook
from holdfast.alerts.notify.quiet_times import quiet_times
from holdfast.alerts.notify.reading import KINDS, Reading
from holdfast.alerts.presentation import for_how_long
from holdfast.alerts.rule import Rule, selectors_of
from holdfast.alerts.table import RULES
from holdfast.alerts.tuning import rules_from
from holdfast.cli.main import cli
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.settings import load_settings
from holdfast.testing import ManualClock

cli.load_all()

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "alerts.md"
RUNBOOK = ROOT / "docs" / "runbook.md"
SCRIPT = ROOT / "scripts" / "alerts-table"


def script() -> ModuleType:
    """It has no .py at its end."""
    loader = importlib.machinery.SourceFileLoader("alerts_table", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(SCRIPT.read_text(encoding="utf-8"), SCRIPT, "exec"), module.__dict__)
    return module


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_has_every_rule_and_no_other() -> None:
    told = re.findall(r"^\| \[(\w+)\]\(runbook\.md#([\w-]+)\) \| (\w+) \|.*\| ([\w ]+) \| [\w ]*\|$", *page_table())
    expected = [(rule.name, rule.runbook, str(rule.severity), for_how_long(rule)) for rule in RULES]
    assert told == expected


def page_table() -> tuple[str, re.RegexFlag]:
    text = PAGE.read_text(encoding="utf-8")
    return text.partition("<!-- rules: begin -->")[2].partition("<!-- rules: end -->")[0], re.MULTILINE


def test_the_script_that_writes_the_table_changes_nothing() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == script().with_table(page), "run scripts/alerts-table --write"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_says_what_to_do(rule: Rule) -> None:
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert rule.runbook in {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"{(\w+)}", rule.command)) <= set(rule.by)
    program, *arguments = shlex.split(rule.command)
    assert program == "holdfast"
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    # Raises for what cannot be typed. A command remembers how its help is asked for.
    command.make_context(rule.name, arguments, help_option_names=["-h", "--help"])


def test_the_settings_that_are_shown_can_be_read(tmp_path: Path) -> None:
    environ = {"SLACK_WEBHOOK_URL": "https://hooks.slack.com/x", "TICKETS_SECRET": "whsec_YQ==", "SMTP_PASSWORD": "x"}
    kinds: set[str] = set()
    key = tmp_path / "pagerduty"
    key.write_text("k" * 32)
    for number, block in enumerate(blocks("toml")):
        text = block.replace("/run/secrets/pagerduty", str(key))
        tables: dict[str, Any] = tomllib.loads(text)["alerts"]
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        rules_from(load_settings(environ={}, config=file).alerts, "local")
        quiet_times(tables.get("quiet", []))
        client = OutgoingClient(AddressGuard())
        kinds |= {one.kind for one in Reading(client, ManualClock(), environ).receivers(tables.get("receivers", []))}
    assert kinds == {*KINDS} - {"log"}


def test_the_check_of_signatures_that_is_shown_works() -> None:
    import time

    [code] = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), names)
    is_genuine = names["is_genuine"]
    now = int(time.time())
    for secret in ("whsec_c2VjcmV0", "plain text"):
        key = webhook.key_of(secret)
        headers = {
            "webhook-id": "ntf_1",
            "webhook-timestamp": str(now),
            "webhook-signature": webhook.signature(key, "ntf_1", now, b"{}"),
        }
        assert is_genuine(secret, headers, b"{}")
        assert not is_genuine(secret, headers, b"{ }")
        assert not is_genuine(secret, headers | {"webhook-id": "ntf_2"}, b"{}")
        assert not is_genuine("other", headers, b"{}")
        old = now - 400
        headers["webhook-timestamp"] = str(old)
        headers["webhook-signature"] = webhook.signature(key, "ntf_1", old, b"{}")
        assert not is_genuine(secret, headers, b"{}")


def test_each_rule_is_judged_by_one_part_alone() -> None:
    """As the page says of parts that run alone: none of them tells what another one tells."""
    parts = {"broker": "broker", "push": "broker", "consumer": "consume", "desk": "desk", "alerts": "each its own"}
    for rule in RULES:
        names = {one.metric for one in selectors_of(rule.measure)}
        found = {"desk" if name.startswith("dlq_") else parts[name.split("_")[1]] for name in names}
        assert len(found) == 1, rule.name
