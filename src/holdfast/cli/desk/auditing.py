"""`holdfast audit list` and `verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.desk.asking import Reader, limit_option, moment, reading_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table
from holdfast.errors import HoldfastError

PATH = "/api/v1/audit"


@click.command("list")
@click.option("--actor", metavar="NAME", help="Done by this one.")
@click.option("--action", metavar="VERB", help="Such as group.resolve.")
@click.option("--target", metavar="NAME", help="Done to this.")
@click.option("--since", metavar="TIME", help="Since then: 24h, 7d, 2026-01-31T09:00:00Z.")
@click.option("--until", metavar="TIME", help="Before then.")
@limit_option
@json_option
@reading_options
def list_entries(reader: Reader, limit: int, as_json: bool, **wanted: str | None) -> None:
    """List who did what, newest first."""
    pairs = [(name, value) for name, value in wanted.items() if value is not None]
    entries = reader.pages(PATH, pairs, "entries", limit)
    if as_json:
        print_json({"entries": entries})
    elif not entries:
        click.echo("no entries")
    else:
        print_table(("number", "time", "actor", "action", "target", "details"), [_cells(entry) for entry in entries])


def _cells(entry: Mapping[str, Any]) -> list[object]:
    details = json.dumps(entry["details"], ensure_ascii=False) if entry["details"] else ""
    return [entry["number"], moment(entry["at"]), entry["actor"], entry["action"], entry["target"], details]


@click.command()
@click.option("--head", metavar="HASH", help="The hash of an entry that must be among them, as you noted it.")
@json_option
@reading_options
def verify(reader: Reader, head: str | None, as_json: bool) -> None:
    """Check that no entry was changed or taken out, and print the hash of the last one.

    Note that hash elsewhere: with --head, it shows later that the end was not cut off either.
    """
    verdict = reader.get(f"{PATH}/verify", [("head", head)] if head is not None else [])
    if as_json:
        print_json(verdict)
    elif verdict["ok"]:
        click.echo(f"{verdict['entry']} entries, all as they were written; head {verdict['head']}")
    if not verdict["ok"]:
        raise HoldfastError(f"the audit trail is not whole: {verdict['problem']}")
