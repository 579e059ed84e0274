"""`holdfast alerts list`, `history` and `receivers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.alerts.asking import PATH, asking_options
from holdfast.cli.desk.asking import Sender, limit_option, moment
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table
from holdfast.model.names import short_id


@click.command("list")
@click.option("--pending", is_flag=True, help="Also those whose condition does not hold for long enough yet.")
@json_option
@asking_options
def list_alerts(process: Sender, pending: bool, as_json: bool) -> None:
    """List the alerts that fire now, and what to run next."""
    found = process.get(PATH)["alerts"]
    found = [one for one in found if pending or one["state"] == "firing"]
    if as_json:
        print_json({"alerts": found})
    elif not found:
        click.echo("no alerts")
    else:
        titles = ("state", "severity", "rule", "about", "since", "value", "limit", "silenced until", "told", "next")
        print_table(titles, [_cells(one) for one in found], whole=True)


def _cells(one: Mapping[str, Any]) -> list[object]:
    details = one["details"]
    return [
        one["state"],
        one["severity"],
        one["rule"],
        about(one["labels"]),
        moment(one["startedAt"]),
        details.get("measured", ""),
        details.get("limit", ""),
        moment(one["silencedUntil"]),
        ", ".join(one["told"]),
        details.get("next", ""),
    ]


def about(labels: Mapping[str, str]) -> str:
    return ", ".join(short_id(text) if text.startswith("projects/") else text for text in labels.values())


@click.command()
@limit_option
@json_option
@asking_options
def history(process: Sender, limit: int, as_json: bool) -> None:
    """List the alerts that have fired, the newest first."""
    found = process.pages(f"{PATH}/history", [], "alerts", limit)
    if as_json:
        print_json({"alerts": found})
    elif not found:
        click.echo("no alerts")
    else:
        rows = [
            [one["severity"], one["rule"], moment(one["startedAt"]), moment(one["endedAt"]), one["summary"]]
            for one in found
        ]
        print_table(("severity", "rule", "began", "ended", "what"), rows, whole=True)


@click.command()
@json_option
@asking_options
def receivers(process: Sender, as_json: bool) -> None:
    """List who is told, and how that went since the process started."""
    found = process.get(f"{PATH}/receivers")["receivers"]
    if as_json:
        print_json({"receivers": found})
    elif not found:
        click.echo("no receivers: alerts are told by the log; alerts.receivers in holdfast.toml makes some")
    else:
        titles = ("name", "kind", "where", "match", "waiting", "last sent", "last failed", "last error")
        rows = [
            [
                one["name"],
                one["kind"],
                one["where"],
                " ".join(one["match"]),
                one["waiting"],
                moment(one["lastSentAt"]),
                moment(one["lastFailedAt"]),
                one["lastError"],
            ]
            for one in found
        ]
        print_table(titles, rows, whole=True)
