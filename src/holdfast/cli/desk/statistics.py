"""`holdfast failures stats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.desk.asking import Reader, moment, reading_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table

PATH = "/api/v1/failures/stats"

UNKNOWN = "not known"


@click.command()
@click.option("--since", metavar="TIME", help="Of failures since then: 24h, 7d, 2026-01-31T09:00:00Z.  [default: 7d]")
@json_option
@reading_options
def stats(reader: Reader, since: str | None, as_json: bool) -> None:
    """Show how failures did: rates, reasons, and what was promised against what happened."""
    report = reader.get(PATH, [("since", since)] if since is not None else [])
    if as_json:
        print_json(report)
        return
    click.echo(f"Failures recorded from {moment(report['since'])} to {moment(report['until'])} UTC\n")
    print_table(("metric", "value"), _metrics(report))
    click.echo()
    print_table(("failure reason", "count", "share", "avg retries", "success rate"), _reasons(report))
    click.echo()
    print_table(("promise", "target", "actual", "status"), [_promise(promise) for promise in report["sla"]])


# Each table.


def _metrics(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    by_status, retries = report["byStatus"], report["retries"]
    return [
        ("messages processed", _processed(report["processed"])),
        ("failed messages", f"{report['failed']:,}"),
        ("failure rate", _failure_rate(report["processed"])),
        ("permanent failures", f"{by_status['permanent_failure']:,}"),
        ("queued for retry", f"{by_status['queued_for_retry']:,}"),
        ("retry success rate", _percent(retries["successRate"])),
        ("average retries before success", _number(retries["averageBeforeSuccess"])),
        ("median time to recovery", _seconds(report["medianRecoverySeconds"])),
        ("median time to detection", _seconds(report["medianDetectionSeconds"])),
        ("largest retry queue", f"{report['largestQueue']:,}"),
        ("messages lost", f"{report['lost']:,}"),
    ]


def _processed(processed: Mapping[str, Any] | None) -> str:
    if processed is None:
        return "not known here: ask a running `holdfast up` with --url"
    return f"{processed['total']:,} (by {processed['by']} since {moment(processed['since'])})"


def _failure_rate(processed: Mapping[str, Any] | None) -> str:
    if processed is None:
        return UNKNOWN
    return f"{_percent(processed['failureRate'])} ({processed['failed']:,} since {moment(processed['since'])})"


def _reasons(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = [
        (
            one["reason"],
            f"{one['count']:,}",
            _percent(one["share"]),
            _number(one["averageRetries"]),
            _percent(one["successRate"]),
        )
        for one in report["byReason"]
    ]
    return [*rows, _total(report)]


def _total(report: Mapping[str, Any]) -> tuple[str, ...]:
    failed = report["failed"]
    if not failed:
        return ("TOTAL", "0", "", "", "")
    retries = sum(one["averageRetries"] * one["count"] for one in report["byReason"])
    recovered = sum(one["recovered"] for one in report["byReason"])
    return ("TOTAL", f"{failed:,}", "100 %", _number(retries / failed), _percent(recovered / failed))


def _promise(promise: Mapping[str, Any]) -> tuple[str, str, str, str]:
    unit = promise["unit"]
    sign = ">" if promise["moreIsBetter"] else "<"
    met = {True: "met", False: "MISSED", None: UNKNOWN}[promise["met"]]
    return promise["name"], f"{sign} {_of_unit(promise['target'], unit)}", _of_unit(promise["actual"], unit), met


# Each value.


def _of_unit(value: float | None, unit: str) -> str:
    return {"share": _percent, "seconds": _seconds}.get(unit, _number)(value)


def _percent(share: float | None) -> str:
    """With what matters of a small one: 0.072 %, 0.0006 %."""
    return UNKNOWN if share is None else f"{share * 100:.3g} %" if share < 0.1 else f"{share * 100:.1f} %"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
