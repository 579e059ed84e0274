"""What holdfast.toml can change of the rules, and what is said about a table that is wrong."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from holdfast.alerts.alert import Severity
from holdfast.alerts.rule import Comparison, Excess, Growth, Increase, Level, Rule, Share, selectors_of
from holdfast.alerts.selector import Matcher, Selector
from holdfast.alerts.table import RULES
from holdfast.alerts.tuning import rules_from
from holdfast.alerts.words import FOR, LIMIT, WINDOW
from holdfast.errors import SettingError
from holdfast.metrics.table import METRICS
from holdfast.settings import AlertSettings, Texts


def tuned(text: str, *critical: str) -> dict[str, Rule]:
    tables: list[dict[str, Any]] = tomllib.loads(text).get("rule", [])
    settings = AlertSettings(rules=tuple(tables), critical_subscriptions=Texts(critical))
    return {rule.name: rule for rule in rules_from(settings, "local")}


def test_without_settings_it_is_the_table() -> None:
    assert list(tuned("").values()) == list(RULES)


def test_the_table_names_metrics_and_labels_that_exist() -> None:
    metrics = {metric.name: metric for metric in METRICS}
    for rule in RULES:
        for selector in selectors_of(rule.measure):
            labels = metrics[selector.metric].labels
            assert {*rule.by, *(matcher.label for matcher in selector.matchers)} <= set(labels), rule.name
        assert set(rule.by) == set(re.findall(r"{(\w+)}", rule.summary)) - {LIMIT, FOR, WINDOW}, rule.name
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_rule_is_changed() -> None:
    rules = tuned(
        """
        [[rule]]
        rule = "OldestUnacked"
        threshold = 600
        for = "2m"
        severity = "critical"
        compare = ">="
        summary = "{subscription} is late"
        runbook = "late"
        [[rule]]
        rule = "StaleSpike"
        enabled = false
        """
    )
    rule = rules["OldestUnacked"]
    assert (rule.threshold, rule.for_seconds, rule.severity) == (600, 120, Severity.CRITICAL)
    assert (rule.comparison, rule.summary, rule.runbook) == (Comparison.AT_LEAST, "{subscription} is late", "late")
    assert "StaleSpike" not in rules
    assert [*rules] == [rule.name for rule in RULES if rule.name != "StaleSpike"]


def restricted(rule: Rule) -> set[tuple[Matcher, ...]]:
    return {selector.matchers for selector in selectors_of(rule.measure)}


def test_subscriptions_that_rules_keep_to() -> None:
    rules = tuned(
        """
        [[rule]]
        rule = "DeadLettersWait"
        subscriptions = "all"
        [[rule]]
        rule = "DeadLettersGrow"
        subscriptions = "critical"
        [[rule]]
        rule = "OldestUnacked"
        subscriptions = ["a.b", "projects/p/subscriptions/c"]
        """,
        "orders.worker",
    )
    critical = Matcher("subscription", "=~", r"projects/local/subscriptions/orders\.worker")
    assert restricted(rules["DeadLettersWait"]) == {()}
    assert restricted(rules["DeadLettersStay"]) == {(critical,)}
    assert restricted(rules["DeadLettersGrow"]) == {(critical,)}
    some = Matcher("subscription", "=~", r"projects/local/subscriptions/a\.b|projects/p/subscriptions/c")
    assert restricted(rules["OldestUnacked"]) == {(some,)}
    assert [rule.name for rule in rules.values() if rule.critical_only] == [
        "DeadLettersStay",
        "DeadLettersBurst",
        "DeadLettersGrow",
    ]


def test_rules_of_ones_own() -> None:
    rules = tuned(
        """
        [[rule]]
        rule = "A1b"
        measure = "level"
        of = 'holdfast_broker_backlog{subscription!~"x.*"}'
        threshold = 5
        [[rule]]
        rule = "Growing"
        measure = "growth"
        of = "holdfast_broker_backlog"
        threshold = 5
        window = "10m"
        by = []
        [[rule]]
        rule = "PerMinute"
        measure = "increase"
        of = 'holdfast_push_attempts_total{result="timeout"}'
        per_minute = true
        threshold = 5
        [[rule]]
        rule = "Half"
        measure = "share"
        part = 'holdfast_push_attempts_total{result="timeout"}'
        whole = "holdfast_push_attempts_total"
        at_least = 7
        threshold = 0.5
        by = ["subscription", "result"]
        [[rule]]
        rule = "MoreInThanOut"
        measure = "excess"
        incoming = "holdfast_broker_delivered_total"
        outgoing = "holdfast_broker_acked_total"
        threshold = 5
        """
    )
    backlog = Selector("holdfast_broker_backlog")
    attempts = Selector("holdfast_push_attempts_total")
    timeouts = attempts.with_(Matcher("result", "=", "timeout"))
    found = {name: (rules[name].measure, rules[name].by) for name in [*rules][len(RULES) :]}
    assert found == {
        "A1b": (Level(backlog.with_(Matcher("subscription", "!~", "x.*"))), ("subscription",)),
        "Growing": (Growth(backlog, 600), ()),
        "PerMinute": (Increase(timeouts, 300, per_minute=True), ("subscription",)),
        "Half": (Share(timeouts, attempts, 300, 7), ("subscription", "result")),
        "MoreInThanOut": (
            Excess(Selector("holdfast_broker_delivered_total"), Selector("holdfast_broker_acked_total"), 300),
            ("subscription",),
        ),
    }
    assert rules["A1b"].severity is Severity.WARNING


OWN = 'rule = "Own"\nmeasure = "level"\nof = "holdfast_broker_backlog"\nthreshold = 1\n'
ACKED = '"holdfast_broker_acked_total"'
COUNTING = 'rule = "Own"\nmeasure = "increase"\nthreshold = 1\n'


@pytest.mark.parametrize(
    ("table", "key", "why"),
    [
        ("threshold = 1", "rule", "must be text"),
        ('rule = "OldestUnaked"', "rule", "did you mean OldestUnacked?"),
        ('rule = "own"\nmeasure = "level"', "rule", "a capital letter first"),
        ('rule = "OldestUnacked"\nfro = "5m"', "fro", "there is no such key"),
        ('rule = "OldestUnacked"\nwindow = "5m"', "window", "what it measures stays"),
        ('rule = "OldestUnacked"\nfor = "soon"', "for", "such as 90s, 5m or 1h"),
        ('rule = "OldestUnacked"\nfor = -1', "for", "from 0 to 86400"),
        ('rule = "OldestUnacked"\nfor = true', "for", "from 0 to 86400"),
        ('rule = "OldestUnacked"\nthreshold = "many"', "threshold", "must be a number"),
        ('rule = "OldestUnacked"\nthreshold = nan', "threshold", "must be a number"),
        ('rule = "ServerErrors"\nthreshold = 5', "threshold", "it is a share"),
        ('rule = "OldestUnacked"\nseverity = "urgent"', "severity", "warning, critical"),
        ('rule = "OldestUnacked"\nseverity = ["warning"]', "severity", "warning, critical"),
        ('rule = "OldestUnacked"\ncompare = "=="', "compare", ">, >=, <"),
        ('rule = "OldestUnacked"\nenabled = "no"', "enabled", "true or false"),
        ('rule = "OldestUnacked"\nsummary = "{topic}"', "summary", "it may name subscription, limit, for, window"),
        ('rule = "OldestUnacked"\nsubscriptions = "some"', "subscriptions", "all, critical, or a list"),
        ('rule = "OldestUnacked"\nsubscriptions = []', "subscriptions", "all, critical, or a list"),
        ('rule = "ServerErrors"\nsubscriptions = "critical"', "subscriptions", "does not tell subscriptions apart"),
        ('rule = "Own"\nmeasure = "sum"', "measure", "level, growth, increase, share, excess"),
        (OWN + 'window = "5m"', "window", "for a level these are"),
        (OWN.replace("threshold = 1", ""), "threshold", "must be a number"),
        (OWN.replace("_backlog", "_backlok"), "of", "did you mean holdfast_broker_backlog?"),
        (OWN.replace("backlog", "acked_total"), "of", "must be a gauge, and holdfast_broker_acked_total is a counter"),
        (OWN.replace('backlog"', "backlog{topic='x'}\""), "of", "labels that cannot be read"),
        (
            OWN.replace('"holdfast_broker_backlog"', "'holdfast_broker_backlog{topic=\"x\"}'"),
            "of",
            "has no label topic",
        ),
        (OWN.replace('"holdfast_broker_backlog"', "'a{subscription=~\"(\"}'"), "of", "has a pattern that is none"),
        (OWN.replace('"holdfast_broker_backlog"', '"{}"'), "of", "must be a metric"),
        (OWN + 'by = ["topic"]', "by", "has no label topic; it has subscription"),
        (OWN + 'by = "subscription"', "by", "must be a list of labels"),
        (COUNTING + 'of = "holdfast_broker_acked_total"\nwindow = "2h"', "window", "from 60 to 3600"),
        (COUNTING + 'of = "holdfast_push_latency_seconds"', "of", "is a histogram"),
        (
            COUNTING.replace("increase", "share") + f"part = {ACKED}\nwhole = {ACKED}\nat_least = 1.5",
            "at_least",
            "whole number",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_key(table: str, key: str, why: str) -> None:
    with pytest.raises(SettingError) as caught:
        tuned(f"[[rule]]\nrule = 'StaleSpike'\n[[rule]]\n{table}")
    assert caught.value.key == f"alerts.rules[1].{key}"
    assert why in caught.value.allowed


def test_one_table_for_each_rule() -> None:
    with pytest.raises(SettingError, match="has a table already"):
        tuned("[[rule]]\nrule = 'StaleSpike'\n[[rule]]\nrule = 'StaleSpike'\n")


@pytest.mark.parametrize(
    "text", ["a", 'a{b="c"}', 'a{b!="c",d=~"e|f"}', r'a{b="\"\\é"}', 'a{b!~"[^/]+"}'], ids=lambda text: text
)
def test_a_selector_is_read_and_written(text: str) -> None:
    assert str(Selector.parse(text)) == text


@pytest.mark.parametrize(
    ("operator", "fitting"),
    [("=", ["x.y"]), ("!=", ["xzy", "ax.y"]), ("=~", ["x.y", "xzy"]), ("!~", ["ax.y"])],
)
def test_a_matcher_fits_the_whole_value(operator: str, fitting: list[str]) -> None:
    one = Matcher("label", operator, "x.y")
    assert [value for value in ("x.y", "xzy", "ax.y") if one.holds(value)] == fitting
