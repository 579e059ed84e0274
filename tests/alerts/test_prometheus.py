"""The rules file, judged by Prometheus' own promtool: it is valid, and each alert fires at its minute and clears."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.alerts.prometheus import PREFIX, rules_file, texts
from holdfast.alerts.rule import Rule
from holdfast.alerts.table import RULES
from holdfast.alerts.tuning import rules_from
from holdfast.settings import AlertSettings
from tests.alerts.timelines import TIMELINES, Timeline
from tests.support.prometheus import promtool

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "alerts" / "holdfast.rules.yml"

RUNBOOK = "https://example.com/runbook"
# Where Prometheus has the samples from. One process, which has been there all along.
PROCESS = 'job="holdfast",instance="one"'
STARTED = f"holdfast_start_time_seconds{{{PROCESS}}}"


def test_the_shipped_file_is_what_the_code_makes(tmp_path: Path) -> None:
    settings = AlertSettings()
    made = rules_file(rules_from(settings, "local"), settings.runbook_url)
    assert SHIPPED.read_text(encoding="utf-8") == made, "holdfast alerts rules --format prometheus makes it"
    assert f"{len(RULES)} rules found" in promtool("check", "rules", SHIPPED, cwd=tmp_path)


def test_what_users_write_is_quoted(tmp_path: Path) -> None:
    own = {
        "rule": "Odd",
        "measure": "level",
        "of": 'holdfast_broker_backlog{subscription=~"a\\\\.b|\'c"}',
        "threshold": 1,
        "summary": 'it\'s "odd": \\ {subscription}\n# é',
    }
    rules = rules_from(AlertSettings(rules=(own,)), "local")
    (tmp_path / "rules.yml").write_text(rules_file(rules, RUNBOOK), encoding="utf-8")
    assert f"{len(RULES) + 1} rules found" in promtool("check", "rules", "rules.yml", cwd=tmp_path)


def test_every_rule_has_a_timeline_in_which_it_fires_and_clears() -> None:
    proven = {one.rule for one in TIMELINES if one.fires and one.fires[-1][1] < one.minutes - 1}
    assert {rule.name for rule in RULES} <= proven


def by_settings() -> list[list[Timeline]]:
    """Those with the same rules: starting promtool takes longer than any timeline."""
    plain = [one for one in TIMELINES if one.settings == AlertSettings()]
    return [plain, *([one] for one in TIMELINES if one.settings != AlertSettings())]


@pytest.mark.parametrize("timelines", by_settings(), ids=lambda some: f"{some[0].rule}: {len(some)}")
def test_prometheus_fires_at_its_minutes(timelines: Sequence[Timeline], tmp_path: Path) -> None:
    rules = {rule.name: rule for rule in rules_from(timelines[0].settings, "local")}
    (tmp_path / "rules.yml").write_text(rules_file([*rules.values()], RUNBOOK), encoding="utf-8")
    tests = [_test(one, rules[one.rule]) for one in timelines]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    assert "SUCCESS" in promtool("test", "rules", "tests.yml", cwd=tmp_path)


def _test(timeline: Timeline, rule: Rule) -> dict[str, Any]:
    series = {_of_process(name): values for name, values in timeline.series.items()}
    series[STARTED] = [1.0] * timeline.minutes
    return {
        "name": f"{rule.name}: {timeline.what}",
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join("stale" if value is None else f"{value:g}" for value in values)}
            for name, values in series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": PREFIX + rule.name,
                "exp_alerts": [_expected(timeline, rule)] if timeline.firing_at(minute) else [],
            }
            for minute in range(timeline.minutes)
        ],
    }


def _of_process(name: str) -> str:
    return f"{name[:-1]},{PROCESS}}}" if name.endswith("}") else f"{name}{{{PROCESS}}}"


def _expected(timeline: Timeline, rule: Rule) -> dict[str, Any]:
    written = texts(rule, RUNBOOK)
    for name, value in timeline.labels.items():
        written["summary"] = written["summary"].replace(f"{{{{ $labels.{name} }}}}", value)
    return {"exp_labels": {"severity": str(rule.severity), **timeline.labels}, "exp_annotations": written}
