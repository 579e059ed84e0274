"""`holdfast failures cleanup`."""

from __future__ import annotations

import click

from holdfast.cli.desk.asking import Sender, plain_acting_options
from holdfast.cli.desk.bulk import confirm, yes_option
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json

# What was mended so recently is often still being looked at.
ASK_BELOW_DAYS = 1.0


@click.command("cleanup")
@click.option("--days", type=float, help="Keep what was mended in so many days.  [default: 30]")
@yes_option
@json_option
@plain_acting_options
def clean_up(desk: Sender, days: float | None, yes: bool, as_json: bool) -> None:
    """Erase what a retry has mended or somebody has replayed long ago. Permanent failures stay, and so does what is
    under legal hold. With less than a day it asks first."""
    if days is not None and days < ASK_BELOW_DAYS:
        confirm(f"Erase what was mended more than {days:g} days ago? That is also what was mended today.", yes)
    done = desk.post("/api/v1/failures:cleanUp", {} if days is None else {"days": days})
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['erased']} erased")
