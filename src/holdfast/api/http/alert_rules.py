"""GET /api/v1/alerts/rules: what is judged here."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.alerts.alert import Severity
from holdfast.alerts.presentation import presented
from holdfast.alerts.rule import Comparison, Rule
from holdfast.api.http.describing import (
    Answer,
    ApiRoute,
    Operation,
    api_route,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    record,
    text,
)

PATH = "/api/v1/alerts/rules"


def routes(rules: Sequence[Rule], runbook_url: str) -> list[ApiRoute]:
    async def list_rules(request: Request) -> Response:
        return JSONResponse({"rules": [presented(rule, runbook_url) for rule in rules]})

    return [api_route("GET", PATH, list_rules, _LIST)]


_RULE = record(
    {
        "rule": text(),
        "severity": one_of([*Severity]),
        "firesWhen": text("In words"),
        "measure": one_of(["level", "growth", "increase", "share", "excess"]),
        "compare": one_of([*Comparison]),
        "threshold": number("A share is from 0 to 1"),
        "forSeconds": integer("How long it must be passed"),
        "windowSeconds": integer("What it is measured over; 0 for what is the case now"),
        "labels": list_of(text(), "There is one alert for each of their values"),
        "criticalOnly": boolean("Only of the subscriptions that alerts.critical_subscriptions names"),
        "summary": text("With {label} where an alert has the value"),
        "runbook": text("Where it says what to do"),
        "command": text("What to run first, with {label} where an alert has the value"),
        "prometheusAlert": text("Its name in Prometheus"),
        "promql": text("The same condition for Prometheus"),
    },
    title="AlertRule",
)

_LIST = Operation(
    "The alert rules",
    "As the settings of this process change them.",
    tag="alerts",
    answer=Answer(record({"rules": list_of(_RULE)}), "All of them"),
)
