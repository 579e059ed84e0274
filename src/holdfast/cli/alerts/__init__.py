"""`holdfast alerts`: a file for each of its commands."""

from __future__ import annotations

import click

from holdfast.cli.alerts.acting import silence, silences, test, unsilence
from holdfast.cli.alerts.looking import history, list_alerts, receivers
from holdfast.cli.alerts.rules import rules
from holdfast.cli.options import Commands


@click.group(cls=Commands)
def alerts() -> None:
    """See what people are told, and when; silence it."""


for _command in (list_alerts, history, rules, silence, unsilence, silences, receivers, test):
    alerts.add_command(_command)
