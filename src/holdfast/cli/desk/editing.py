"""`holdfast failures edit`, `revisions`, `diff` and `validate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from holdfast.cli.desk.asking import Reader, Sender, acting_options, moment, reading_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table
from holdfast.deadletter.edits.document import raw_payload
from holdfast.deadletter.selection import path_parts
from holdfast.errors import BadInput, FailedPrecondition
from holdfast.model.exact_json import dump_exact_json, load_exact_json, parse_exact_json, plain
from holdfast.model.json_pointer import format_pointer

PATH = "/api/v1/failures"

failure_argument = click.argument("failure_id", metavar="ID", type=int)
_bytes = click.File("rb")


def change_options(command: Any) -> Any:
    """Those that fit one message and a selection alike."""
    for option in (
        click.option("--merge", metavar="FILE", type=_bytes, help="A JSON Merge Patch, RFC 7396; - is standard input."),
        click.option("--patch", metavar="FILE", type=_bytes, help="A JSON Patch, RFC 6902; - is standard input."),
        click.option("--set-key", metavar="KEY", help="Another ordering key."),
        click.option("--set-attribute", metavar="NAME=VALUE", multiple=True, help="An attribute. Repeatable."),
        click.option("--set", "values", metavar="PATH=VALUE", multiple=True, help="In the payload. Repeatable."),
    ):
        command = option(command)
    return command


def change_of(
    values: Sequence[str],
    set_attribute: Sequence[str],
    set_key: str | None,
    patch: IO[bytes] | None,
    merge: IO[bytes] | None,
    **others: Any,
) -> dict[str, Any]:
    """The part of a body that says what to change. `others` are further forms that are there already."""
    forms = dict(others)
    if changed := _set(values, set_attribute, set_key):
        forms["set"] = changed
    for name, file in (("patch", patch), ("merge", merge)):
        if file is not None:
            forms[name] = _json(f"--{name}", file.read())
    if len(forms) != 1:
        raise BadInput("change", "must be told in one way: --set and the like, --patch, --merge, --data or --undo")
    return forms


def _set(values: Sequence[str], attributes: Sequence[str], ordering_key: str | None) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for given in values:
        path, value = _split("--set", given)
        changed[format_pointer(("json", *path_parts(path)))] = _value(value)
    for given in attributes:
        name, value = _split("--set-attribute", given)
        changed[format_pointer(("attributes", name))] = value
    if ordering_key is not None:
        changed["/orderingKey"] = ordering_key
    return changed


def _split(option: str, given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise BadInput(option, f"must look like NAME=VALUE, not {given!r}")
    return name, value


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text: 17 is a number, and seventeen a string."""
    try:
        return parse_exact_json(text.encode())
    except ValueError:
        return text


def _json(option: str, text: bytes) -> Any:
    try:
        return parse_exact_json(text)
    except ValueError as error:
        raise BadInput(option, str(error)) from error


# Commands.


@click.command()
@failure_argument
@change_options
@click.option("--data", metavar="FILE", type=_bytes, help="The whole payload anew; - is standard input.")
@click.option("--undo", metavar="N", type=click.IntRange(0), help="As revision N was; 0 is the original.")
@click.option("--comment", default="", help="Why, for those who look at it later.")
@click.option("--version", type=click.IntRange(1), help="Only if it still has this version, as `show` tells it.")
@json_option
@acting_options
def edit(
    desk: Sender,
    failure_id: int,
    data: IO[bytes] | None,
    undo: int | None,
    comment: str,
    version: int | None,
    as_json: bool,
    **change: Any,
) -> None:
    """Edit a failed message: a new revision, which is what is sent from now on. The original stays."""
    others: dict[str, Any] = {} if undo is None else {"undo": undo}
    if data is not None:
        others["content"] = raw_payload(data.read())
    body = change_of(**change, **others) | {"comment": comment} | ({} if version is None else {"version": version})
    edited = desk.post(f"{PATH}/{failure_id}:edit", body, loads=load_exact_json)
    if as_json:
        print_json(plain(edited))
        return
    print_differences(edited["differences"])
    told = plain(edited)
    click.echo(f"\nrevision {told['revision']} of failure {failure_id}, version {told['version']}")
    print_findings(edited["findings"])


@click.command()
@failure_argument
@json_option
@reading_options
def revisions(reader: Reader, failure_id: int, as_json: bool) -> None:
    """List the edits of a failed message; revision 0 is the original."""
    found = reader.get(f"{PATH}/{failure_id}/revisions")
    if as_json:
        print_json(found)
    else:
        print_table(
            ("revision", "created", "author", "comment"),
            [(one["number"], moment(one["createdAt"]), one["author"], one["comment"]) for one in found["revisions"]],
        )


@click.command()
@failure_argument
@click.argument("old", metavar="[A]", type=click.IntRange(0), required=False)
@click.argument("new", metavar="[B]", type=click.IntRange(0), required=False)
@json_option
@reading_options
def diff(reader: Reader, failure_id: int, old: int | None, new: int | None, as_json: bool) -> None:
    """Show what differs between revision A (the original) and revision B (the newest)."""
    pairs = [(name, str(number)) for name, number in (("from", old), ("to", new)) if number is not None]
    found = reader.get(f"{PATH}/{failure_id}/diff", pairs, load_exact_json)
    if as_json:
        print_json(plain(found))
    else:
        print_differences(found["differences"])


@click.command()
@failure_argument
@click.option("--revision", metavar="N", type=click.IntRange(0), help="Of this revision instead of the newest.")
@json_option
@acting_options
def validate(desk: Sender, failure_id: int, revision: int | None, as_json: bool) -> None:
    """Ask the topic's schema and the consumer's handler whether a failed message would pass now."""
    found = desk.post(f"{PATH}/{failure_id}:validate", {} if revision is None else {"revision": revision})
    if as_json:
        print_json(found)
    else:
        print_findings(found["findings"])
    if not found["ok"]:
        raise FailedPrecondition(f"failure {failure_id} would not pass")


# Shown.


def print_differences(differences: Sequence[Mapping[str, Any]]) -> None:
    if not differences:
        click.echo("no differences")
        return
    rows = [(one["path"] or "/", one["kind"], _cell(one, "old"), _cell(one, "new")) for one in differences]
    print_table(("path", "change", "old", "new"), rows)


def _cell(difference: Mapping[str, Any], name: str) -> str:
    return dump_exact_json(difference[name]) if name in difference else ""


def print_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    if findings:
        rows = [row for finding in findings for row in _finding_cells(finding)]
        print_table(("check", "passes", "path", "expected", "actual"), rows)
    else:
        click.echo("nobody to ask whether it would pass")


def _finding_cells(finding: Mapping[str, Any]) -> list[Sequence[str]]:
    if finding["complaints"]:
        return [(finding["check"], "NO", one["path"], one["expected"], one["actual"]) for one in finding["complaints"]]
    return [(finding["check"], "not asked" if finding["skipped"] else "yes", "", finding["skipped"], "")]
