"""`holdfast alerts`: a file for each of its commands."""

from __future__ import annotations

import click

from holdfast.cli.alerts.rules import rules
from holdfast.cli.options import Commands


@click.group(cls=Commands)
def alerts() -> None:
    """See what people are told, and when."""


alerts.add_command(rules)
