"""`holdfast failures groups` and `group show`, and what people do with a group: ack, resolve, reopen and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.cli.desk.asking import Reader, Sender, acting_options, limit_option, moment, reading_options
from holdfast.cli.options import Commands, json_option
from holdfast.cli.output import print_fields, print_json, print_table, printable
from holdfast.model.names import short_id

PATH = "/api/v1/groups"

_TITLES = ("group", "state", "waiting", "count", "last seen", "reason", "subscription", "assignee", "error")

fingerprint_argument = click.argument("fingerprint", metavar="GROUP")
version_option = click.option(
    "--version", type=click.IntRange(1), help="Only if it still has this version, as `group show` tells it."
)


# Looking.


@click.command()
@click.option("--state", metavar="STATE", multiple=True, help="open, acknowledged, resolved, reopened; repeatable.")
@click.option("--subscription", metavar="NAME", help="Of this subscription: an id, or a full path.")
@click.option("--reason", metavar="REASON", help="With this failure reason.")
@click.option("--assignee", metavar="NAME", help="Of this person.")
@limit_option
@json_option
@reading_options
def groups(
    reader: Reader,
    state: Sequence[str],
    subscription: str | None,
    reason: str | None,
    assignee: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List groups of failures that went wrong in the same way, the last seen first."""
    wanted = {"subscription": subscription, "reason": reason, "assignee": assignee}
    pairs = [("state", one) for one in state] + [(name, value) for name, value in wanted.items() if value is not None]
    found = reader.pages(PATH, pairs, "groups", limit)
    if as_json:
        print_json({"groups": found})
    elif not found:
        click.echo("no groups")
    else:
        print_table(_TITLES, [_cells(group) for group in found])


def _cells(group: Mapping[str, Any]) -> list[object]:
    return [
        group["fingerprint"],
        group["state"],
        group["waiting"],
        group["count"],
        moment(group["lastSeen"]),
        group["failureReason"],
        short_id(group["subscription"]) or "(ingest)",
        group["assignee"],
        group["example"],
    ]


@click.group(cls=Commands)
def group() -> None:
    """See one group."""


@group.command("show")
@fingerprint_argument
@click.option("--since", metavar="TIME", help="How far back counts by hour go.  [default: 7d]")
@json_option
@reading_options
def group_show(reader: Reader, fingerprint: str, since: str | None, as_json: bool) -> None:
    """Show one group with its counts by hour and its comments."""
    found = reader.get(f"{PATH}/{fingerprint}", [("since", since)] if since is not None else [])
    if as_json:
        print_json(found)
        return
    print_fields([(name, value) for name, value in found.items() if name not in ("countsByHour", "comments") and value])
    if found["countsByHour"]:
        click.echo()
        print_table(["hour", "count"], [(moment(one["hour"]), one["count"]) for one in found["countsByHour"]])
    for comment in found["comments"]:
        click.echo(f"\n{moment(comment['createdAt'])} {printable(comment['author'])}: {printable(comment['text'])}")


# Acting.


@click.command()
@fingerprint_argument
@version_option
@json_option
@acting_options
def ack(desk: Sender, fingerprint: str, version: int | None, as_json: bool) -> None:
    """Acknowledge a group: somebody has seen it."""
    _change(desk, fingerprint, "acknowledge", {"version": version}, as_json)


@click.command()
@fingerprint_argument
@version_option
@json_option
@acting_options
def resolve(desk: Sender, fingerprint: str, version: int | None, as_json: bool) -> None:
    """Resolve a group: its cause is gone. It is reopened by itself when it returns."""
    _change(desk, fingerprint, "resolve", {"version": version}, as_json)


@click.command()
@fingerprint_argument
@version_option
@json_option
@acting_options
def reopen(desk: Sender, fingerprint: str, version: int | None, as_json: bool) -> None:
    """Reopen a group: its cause is not gone after all."""
    _change(desk, fingerprint, "reopen", {"version": version}, as_json)


@click.command()
@fingerprint_argument
@click.argument("assignee")
@version_option
@json_option
@acting_options
def assign(desk: Sender, fingerprint: str, assignee: str, version: int | None, as_json: bool) -> None:
    """Give a group to ASSIGNEE, or with "" to nobody."""
    _change(desk, fingerprint, "assign", {"assignee": assignee, "version": version}, as_json)


@click.command()
@fingerprint_argument
@click.argument("text")
@json_option
@acting_options
def comment(desk: Sender, fingerprint: str, text: str, as_json: bool) -> None:
    """Say TEXT about a group."""
    said = desk.post(f"{PATH}/{fingerprint}/comments", {"text": text})
    if as_json:
        print_json(said)
    else:
        click.echo(f"commented on {printable(fingerprint)}")


def _change(desk: Sender, fingerprint: str, verb: str, body: Mapping[str, Any], as_json: bool) -> None:
    given = {name: value for name, value in body.items() if value is not None}
    group = desk.post(f"{PATH}/{fingerprint}:{verb}", given)
    if as_json:
        print_json(group)
        return
    whose = f", assigned to {group['assignee']}" if group["assignee"] else ""
    click.echo(printable(f"{group['fingerprint']} is {group['state']}{whose}"))
