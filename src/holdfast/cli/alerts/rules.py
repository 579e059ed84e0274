"""`holdfast alerts rules`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.alerts.presentation import about, for_how_long, in_words, presented
from holdfast.alerts.prometheus import rules_file
from holdfast.alerts.terraform import policies
from holdfast.alerts.tuning import rules_from
from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import print_json, print_table
from holdfast.errors import HoldfastError

_TITLES = ("rule", "severity", "for", "one for each", "fires when")
_FORMATS = {"prometheus": rules_file, "terraform": policies}


@click.command()
@click.option(
    "--format",
    "file_format",
    type=click.Choice([*_FORMATS]),
    help="Print a rules file for Prometheus, or policies of Google Cloud Monitoring.",
)
@json_option
@config_option
def rules(file_format: str | None, as_json: bool, config: Path | None) -> None:
    """Show the rules: what is measured, its limit, and for how long it must be passed.

    With your own holdfast.toml they are as it changes them.
    """
    if file_format and as_json:
        raise HoldfastError("--json and --format exclude each other")
    settings = settings_from(config)
    found = rules_from(settings.alerts, settings.general.project)
    runbook_url = settings.alerts.runbook_url
    if file_format:
        click.echo(_FORMATS[file_format](found, runbook_url), nl=False)
    elif as_json:
        print_json({"rules": [presented(rule, runbook_url) for rule in found]})
    else:
        cells = [[rule.name, rule.severity, for_how_long(rule), about(rule), in_words(rule)] for rule in found]
        print_table(_TITLES, cells, whole=True)
