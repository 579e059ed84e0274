"""`holdfast failures export` and `import`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

import click

from holdfast.cli.desk.asking import Sender, acting_options
from holdfast.cli.desk.editing import PATH
from holdfast.cli.desk.progress import result_of
from holdfast.cli.desk.selecting import selection_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table
from holdfast.deadletter.selecting import query_from_form
from holdfast.errors import HoldfastError
from holdfast.model.exact_json import plain


@click.command("export")
@selection_options
@acting_options
def export_failures(desk: Sender, selection: Mapping[str, Any]) -> None:
    """Write all failed messages, or those that the options select, to standard output as lines of JSON.

    With their payloads, edits and legal hold. What is redacted is left out, unless --reveal is given.
    """
    asyncio.run(_copy(desk.lines("GET", f"{PATH}:export", query_from_form(selection))))


async def _copy(lines: AsyncIterator[bytes]) -> None:
    out = sys.stdout.buffer
    async for line in lines:
        out.write(line + b"\n")
    out.flush()


@click.command("import")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@json_option
@acting_options
def import_failures(desk: Sender, file: IO[bytes], as_json: bool) -> None:
    """Take in the failed messages of FILE, as `export` has written them; - is standard input.

    What is there already stays as it is. A line that is wrong is told, and all others are taken in.
    """
    imported = plain(result_of(desk.lines("POST", f"{PATH}:import", body=file), "importing"))
    if as_json:
        print_json(imported)
    else:
        click.echo(f"{imported['new']} new, {imported['known']} were there already, {imported['refused']} refused")
        if imported["errors"]:
            print_table(("line", "error"), [(one["line"], one["error"]) for one in imported["errors"]], whole=True)
    if imported["refused"]:
        raise HoldfastError(f"{imported['refused']} of {imported['lines']} lines were refused")
