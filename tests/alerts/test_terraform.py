"""The policies for Google Cloud Monitoring: they parse, Terraform would format them so, and their limits are those of
the table."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hcl2
import pytest

from holdfast.alerts.prometheus import PREFIX
from holdfast.alerts.rule import Rule, window_of
from holdfast.alerts.table import RULES
from holdfast.alerts.terraform import policies
from holdfast.alerts.tuning import rules_from
from holdfast.settings import AlertSettings, Texts
from tests.support.prometheus import promtool

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "alerts" / "cloud-monitoring.tf"
RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
NATIVE = "OnGoogleCloud"

# What Pub/Sub and Cloud Run measure themselves.
ON_GOOGLE_CLOUD = {
    "DeadLettersBurst": "pubsub.googleapis.com/subscription/dead_letter_message_count",
    "ServerErrors": "run.googleapis.com/request_count",
    "ServerErrorsHigh": "run.googleapis.com/request_count",
    "ServerErrorsLast": "run.googleapis.com/request_count",
    "ClientErrors": "run.googleapis.com/request_count",
    "ClientErrorsHigh": "run.googleapis.com/request_count",
    "OldestUnacked": "pubsub.googleapis.com/subscription/oldest_unacked_message_age",
    "OldestUnackedHigh": "pubsub.googleapis.com/subscription/oldest_unacked_message_age",
    "BacklogGrows": "pubsub.googleapis.com/subscription/num_undelivered_messages",
    "BacklogGrowsOn": "pubsub.googleapis.com/subscription/num_undelivered_messages",
}


def parsed(text: str) -> dict[str, Any]:
    """Without the quotes that the parser leaves around texts."""
    found: dict[str, Any] = _plain(hcl2.loads(text))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items() if name != "__is_block__"}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", value[1:-1])
    return value


def shipped_policies() -> dict[str, dict[str, Any]]:
    """By the name of the alert."""
    found = parsed(SHIPPED.read_text(encoding="utf-8"))["resource"]
    named = [policy for one in found for policy in one["google_monitoring_alert_policy"].values()]
    return {policy["display_name"]: policy for policy in named}


POLICIES = shipped_policies()


def query_of(alert: str) -> dict[str, Any]:
    [conditions] = POLICIES[alert]["conditions"]
    [query] = conditions["condition_prometheus_query_language"]
    return dict(query)


def test_the_shipped_file_is_what_the_code_makes() -> None:
    settings = AlertSettings()
    made = policies(rules_from(settings, "local"), settings.runbook_url)
    assert SHIPPED.read_text(encoding="utf-8") == made, "holdfast alerts rules --format terraform makes it"


def test_it_is_as_terraform_formats_it(tmp_path: Path) -> None:
    """Where there is no Terraform, its parse and this simple form are what is checked: `fmt` alone also aligns."""
    text = SHIPPED.read_text(encoding="utf-8")
    assert not re.search(r"[ \t]+$|\t|\n\n\n", text, re.MULTILINE)
    terraform = shutil.which("terraform")
    if terraform:
        command: list[str | Path] = [terraform, "fmt", "-check", "-diff", SHIPPED]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_rule_has_its_policies_and_there_are_no_others() -> None:
    own = {PREFIX + rule.name for rule in RULES}
    assert set(POLICIES) == own | {PREFIX + name + NATIVE for name in ON_GOOGLE_CLOUD}


@pytest.mark.parametrize("alert", POLICIES)
def test_a_policy_has_the_limits_of_its_rule(alert: str) -> None:
    rule = next(rule for rule in RULES if rule.name == alert.removeprefix(PREFIX).removesuffix(NATIVE))
    policy, query = POLICIES[alert], query_of(alert)
    found = re.search(r" (>=|>|<) ([0-9.]+)$", query["query"])
    assert found
    assert (found[1], float(found[2])) == (rule.comparison, rule.threshold)
    assert query["duration"] == f"{rule.for_seconds}s"
    assert query["alert_rule"] == alert
    assert policy["severity"] == rule.severity.upper()
    assert f'"{rule.severity}"' in policy["notification_channels"]
    if window_of(rule.measure):
        windows = {int(number) * 60 for number in re.findall(r"(?:\[|offset )([0-9]+)m", query["query"])}
        assert windows == {window_of(rule.measure)}
    [documentation] = policy["documentation"]
    assert documentation["content"].endswith(f"${{var.runbook_url}}#{rule.runbook}")
    assert "{" not in documentation["content"].replace("${var.runbook_url}", "")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name in ON_GOOGLE_CLOUD], ids=lambda rule: rule.name)
def test_what_google_measures_itself_is_asked_for_by_its_names(rule: Rule) -> None:
    query = query_of(PREFIX + rule.name + NATIVE)["query"]
    # PromQL has other characters in names: Google says how to put them.
    domain, _, path = ON_GOOGLE_CLOUD[rule.name].partition("/")
    metric = f"{domain.replace('.', '_')}:{path.replace('/', '_')}"
    assert set(re.findall(r"\w+_googleapis_com:\w+", query)) == {metric}
    resource = "cloud_run_revision" if domain.startswith("run") else "pubsub_subscription"
    assert query.count(f'monitored_resource="{resource}"') == query.count(metric)
    scope = "service_name" if domain.startswith("run") else "subscription_id"
    assert query.count(f'{scope}=~"${{local.') == query.count(metric)
    if domain.startswith("run"):
        hundreds = "5xx" if rule.name.startswith("Server") else "4xx"
        assert f'response_code_class="{hundreds}"' in query


def test_rules_for_critical_subscriptions_keep_to_those() -> None:
    for rule in RULES:
        query = query_of(PREFIX + rule.name)["query"]
        assert ("${local.critical_subscriptions}" in query) == rule.critical_only
        assert ("${local.subscriptions}" in query) == ("subscription" in rule.by and not rule.critical_only)


def test_prometheus_reads_the_queries(tmp_path: Path) -> None:
    """Cloud Monitoring takes PromQL: promtool is the judge of its syntax that can be had."""
    queries = {alert: re.sub(r"\$\{local\.\w+\}", "a|b", query_of(alert)["query"]) for alert in POLICIES}
    lines = [f"      - alert: {alert}\n        expr: '{query}'\n" for alert, query in queries.items()]
    (tmp_path / "rules.yml").write_text("groups:\n  - name: x\n    rules:\n" + "".join(lines), encoding="utf-8")
    assert f"{len(POLICIES)} rules found" in promtool("check", "rules", "rules.yml", cwd=tmp_path)


def test_the_users_own_rules_are_there_too() -> None:
    own = {"rule": "DeepQueue", "measure": "level", "of": "holdfast_consumer_queue_depth", "threshold": 9}
    changed = {"rule": "OldestUnacked", "threshold": 77}
    settings = AlertSettings(critical_subscriptions=Texts(["a.b"]), rules=(own, changed))
    text = policies(rules_from(settings, "p"), "https://example.com/runbook")
    parsed(text)
    assert 'resource "google_monitoring_alert_policy" "deep_queue"' in text
    assert "max (holdfast_consumer_queue_depth) > 9" in text
    assert text.count("> 77") == 2
    assert r"projects/p/subscriptions/a\\\\.b" in text
    assert 'default     = "https://example.com/runbook"' in text
