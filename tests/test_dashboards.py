"""The Grafana dashboards as files: made by their code, whole by Grafana's schema, and of metrics and limits there are.

tests/e2e/test_dashboards.py asks their queries of a real Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.source import promql
from deploy.grafana.source.boards import FOLDER, made
from deploy.grafana.source.parts import GREEN, RED, YELLOW, limits
from holdfast.alerts.rule import selectors_of
from holdfast.alerts.table import RULES
from holdfast.metrics import alerts, broker, consumer, desk, process, push, traces
from holdfast.metrics.metric import Kind, Metric
from holdfast.metrics.table import METRICS

MADE = made()
BOARDS = {name: json.loads(text) for name, text in MADE.items()}

# Told by nobody before there are receivers; the same as another one; and only where there are traces, which are off.
NOT_SHOWN = {alerts.NOTIFICATIONS, alerts.WAITING, process.PROCESS_START, traces.SPANS, traces.WAITING}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        yield from (target["expr"] for target in panel["targets"])


def steps(*names: str) -> list[tuple[float | None, str]]:
    return [(one.value, one.color) for one in limits(*names)]


def test_the_files_are_what_the_code_makes() -> None:
    shipped = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert shipped == MADE, "scripts/grafana-dashboards --write makes them"


@pytest.mark.parametrize("name", BOARDS)
def test_every_field_is_one_of_grafanas_schema(name: str) -> None:
    """What the schema does not know would be lost on the way through its own types."""
    again = json.loads(json.dumps(Dashboard.from_json(BOARDS[name]), cls=JSONEncoder))
    assert again == BOARDS[name]


@pytest.mark.parametrize("name", BOARDS)
def test_it_can_be_imported_anywhere(name: str) -> None:
    board = BOARDS[name]
    assert re.fullmatch(r"holdfast-[a-z-]{1,30}", board["uid"])
    assert board.get("id") is None
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names[:3] == ["datasource", "job", "instance"]
    for panel in panels(board):
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["description"]
    for used in re.findall(r"\$(\w+)", "".join(queries(board))):
        assert used in {*names, "__rate_interval"}


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_lie_on_each_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        where = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert not cells & taken, panel["title"]
        assert where["x"] + where["w"] <= 24
        taken |= cells


def test_no_two_boards_have_one_uid_and_no_two_panels_of_one_its_title_in_a_row() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        for first, second in zip(board["panels"], board["panels"][1:], strict=False):
            assert first["title"] != second["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_is_of_metrics_and_labels_that_there_are(name: str) -> None:
    known = {metric.name: {*metric.labels, "job", "instance"} for metric in METRICS}
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            known[f"{metric.name}_bucket"] = {*metric.labels, "job", "instance", "le"}
    for query in queries(BOARDS[name]):
        found = re.findall(r"\b((?:holdfast|dlq|process)_\w+)(?:\{([^}]*)\})?", query)
        assert found, query
        for metric, matchers in found:
            assert metric in known, query
            labels = re.findall(r'(\w+)(?:=~|!=|=)"', matchers)
            assert set(labels) <= known[metric], query


def test_every_metric_is_on_a_dashboard() -> None:
    shown = " ".join(query for board in BOARDS.values() for query in queries(board))
    parts = (process, broker, push, consumer, desk, alerts, traces)
    told = {value for part in parts for value in vars(part).values() if isinstance(value, Metric)}
    assert {metric for metric in told if metric.name not in shown} == NOT_SHOWN


def test_the_pie_of_reasons_looks_back_24_hours() -> None:
    [pie] = [panel for panel in panels(BOARDS["dead-letters.json"]) if panel["type"] == "piechart"]
    assert pie["title"] == "Failed Messages by Reason (Last 24 Hours)"
    [target] = pie["targets"]
    assert re.sub(r"{.*?}", "", target["expr"]) == f"sum by (reason) (rate({desk.DLQ_MESSAGES.name}[24h])) > 0"


# Limits.


def test_limits_are_those_of_the_alert_rules() -> None:
    rule = {one.name: one for one in RULES}
    assert steps("OldestUnacked", "OldestUnackedHigh") == [
        (None, GREEN),
        (rule["OldestUnacked"].threshold, YELLOW),
        (rule["OldestUnackedHigh"].threshold, RED),
    ]
    assert steps("RetriesFail") == [(None, YELLOW), (rule["RetriesFail"].threshold, GREEN)]
    assert steps("DeadLettersWait", "DeadLettersStay") == [(None, GREEN), (0, YELLOW)]


def test_limits_of_rules_that_measure_different_things_have_no_line_together() -> None:
    with pytest.raises(ValueError, match="do not measure the same"):
        limits("OldestUnacked", "BacklogGrows")


def test_every_rule_with_a_limit_of_its_own_is_drawn() -> None:
    """A rule that nobody can see on a dashboard fires out of the blue."""
    shown = " ".join(query for board in BOARDS.values() for query in queries(board))
    for rule in RULES:
        seen = NOT_SHOWN.isdisjoint(metric for metric in METRICS if metric.name == selectors_of(rule.measure)[0].metric)
        if seen and rule.name != "ServerErrorsLast":  # drawn as the share of 5xx
            assert promql.measured(rule.name) in shown, rule.name
