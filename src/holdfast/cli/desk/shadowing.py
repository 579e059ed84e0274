"""`holdfast replay shadow`: what a consumer of yours would make of failed messages. It runs in this process, reads the
desk's store and nothing else, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.cli.desk.selecting import selection_options
from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import print_json, print_table, printable
from holdfast.clock import SystemClock
from holdfast.deadletter.replay.presentation import shadow_report_to_json
from holdfast.deadletter.replay.shadow import ShadowReport
from holdfast.deadletter.selecting import Reading, selection_from_json
from holdfast.settings import Settings
from holdfast.wiring.desk.shadow import shadow_report


@click.command()
@click.argument("app", metavar="MODULE:APP")
@selection_options
@click.option("--data", metavar="DIR", help="Directory of the files.  [default: .holdfast]")
@click.option("--failures", "store", metavar="URL", help="Failure store.  [default: sqlite:///.holdfast/failures.db]")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many, oldest first.")
@json_option
@config_option
def shadow(
    app: str,
    selection: Mapping[str, Any],
    data: str | None,
    store: str | None,
    limit: int,
    as_json: bool,
    config: Path | None,
) -> None:
    """Try failed messages on the consumer MODULE:APP, and report what would pass now and what would still fail.

    Its handlers are called, but for those with side effects; what they return is not written anywhere.
    """
    report = asyncio.run(_report(settings_from(config, data=data, desk__failures=store), app, selection, limit))
    told = shadow_report_to_json(report)
    if as_json:
        print_json(told)
    else:
        _print(told)


async def _report(settings: Settings, app: str, selection: Mapping[str, Any], limit: int) -> ShadowReport:
    reading = Reading(SystemClock().now_ns(), settings.general.project)
    return await shadow_report(settings, app, selection_from_json(selection, reading), limit)


def _print(report: Mapping[str, Any]) -> None:
    click.echo(f"{report['wouldPass']:,} would pass, {report['wouldFail']:,} would fail")
    for one in report["unknown"]:
        click.echo(printable(f"{one['count']:,} unknown: {one['why']}"))
    if report["groups"]:
        click.echo()
        rows = [[one["count"], ", ".join(map(str, one["failureIds"])), one["example"]] for one in report["groups"]]
        print_table(("count", "failures", "error"), rows, whole=True)
    if report["documents"]:
        click.echo()
        print_table(("would write to", "documents"), [[one["collection"], one["count"]] for one in report["documents"]])
        click.echo(printable("such as " + ", ".join(report["sampleDocuments"])))
