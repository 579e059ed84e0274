"""`holdfast failures cleanup`."""

from __future__ import annotations

import click

from holdfast.cli.desk.asking import Sender, acting_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json


@click.command("cleanup")
@click.option("--days", type=float, help="Keep what was mended in so many days.  [default: 30]")
@json_option
@acting_options
def clean_up(desk: Sender, days: float | None, as_json: bool) -> None:
    """Erase what a retry has mended or somebody has replayed long ago. Permanent failures stay, and so does what is
    under legal hold."""
    done = desk.post("/api/v1/failures:cleanUp", {} if days is None else {"days": days})
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['erased']} erased")
