"""`holdfast alerts rules`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.alerts.table import RULES
from holdfast.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TUNED = (
    '[[alerts.rules]]\nrule = "OldestUnacked"\nthreshold = 77\n[[alerts.rules]]\nrule = "StaleSpike"\nenabled = false\n'
)


def run(tmp_path: Path, *args: str, config: str = "") -> Result:
    file = tmp_path / "holdfast.toml"
    file.write_text(config, encoding="utf-8")
    return CliRunner().invoke(cli, ["alerts", "rules", "--config", str(file), *args], prog_name="holdfast")


def test_a_table_for_people(tmp_path: Path) -> None:
    done = run(tmp_path, config=TUNED)
    assert done.exit_code == 0
    titles, *lines = done.stdout.splitlines()
    assert titles.split("  ")[0] == "RULE"
    assert [line.split()[0] for line in lines] == [rule.name for rule in RULES if rule.name != "StaleSpike"]
    [line] = [line for line in lines if line.startswith("OldestUnacked ")]
    assert " ".join(line.split()) == (
        "OldestUnacked warning at once subscription holdfast_broker_oldest_unacked_seconds is more than 77 seconds"
    )
    [share] = [line for line in lines if line.startswith("ClientErrors ")]
    assert "is more than 0.1 % of" in share


def test_json_for_programs(tmp_path: Path) -> None:
    rules = {rule["rule"]: rule for rule in json.loads(run(tmp_path, "--json", config=TUNED).stdout)["rules"]}
    assert len(rules) == len(RULES) - 1
    assert rules["OldestUnacked"] == {
        "rule": "OldestUnacked",
        "severity": "warning",
        "firesWhen": "holdfast_broker_oldest_unacked_seconds is more than 77 seconds",
        "measure": "level",
        "compare": ">",
        "threshold": 77,
        "forSeconds": 0,
        "windowSeconds": 0,
        "labels": ["subscription"],
        "criticalOnly": False,
        "summary": "The oldest message of {subscription} has not been acked for more than 77 seconds",
        "runbook": "docs/runbook.md#oldest-unacked",
        "command": "holdfast subscriptions show {subscription}",
        "prometheusAlert": "HoldfastOldestUnacked",
        "promql": "max by (subscription) (holdfast_broker_oldest_unacked_seconds) > 77",
    }


def test_files_for_others(tmp_path: Path) -> None:
    shipped = ROOT / "deploy" / "alerts"
    assert run(tmp_path, "--format", "prometheus").stdout == (shipped / "holdfast.rules.yml").read_text("utf-8")
    assert run(tmp_path, "--format", "terraform").stdout == (shipped / "cloud-monitoring.tf").read_text("utf-8")
    changed = run(tmp_path, "--format", "prometheus", config=TUNED + '[alerts]\nrunbook_url = "https://x.example/r"\n')
    assert changed.exit_code == 0, changed.exception
    assert "runbook_url: 'https://x.example/r#oldest-unacked'" in changed.stdout
    assert "HoldfastStaleSpike" not in changed.stdout


def test_one_format_at_a_time(tmp_path: Path) -> None:
    assert "exclude each other" in str(run(tmp_path, "--json", "--format", "prometheus").exception)
