"""`holdfast alerts silence`, `unsilence`, `silences` and `test`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.alerts.durations import seconds_of
from holdfast.alerts.tables import close_to
from holdfast.cli.alerts.asking import PATH, actor_option, asking_options
from holdfast.cli.desk.asking import Sender, moment
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table, printable
from holdfast.errors import BadInput, HoldfastError


@click.command()
@click.argument("match", nargs=-1, metavar="[CONDITION]...")
@click.option("--rule", metavar="NAME", help="Alerts of this rule.")
@click.option("--for", "lasting", metavar="TIME", help="For so long: 30m, 2h, 7d.")
@click.option("--until", metavar="TIME", help="Until then: 2026-01-31T09:00:00Z.")
@click.option("--from", "begin", metavar="TIME", help="From then on.  [default: now]")
@click.option("--comment", required=True, help="Why.")
@actor_option
@json_option
@asking_options
def silence(
    process: Sender,
    match: Sequence[str],
    rule: str | None,
    lasting: str | None,
    until: str | None,
    begin: str | None,
    comment: str,
    as_json: bool,
) -> None:
    """Tell nobody of certain alerts for a time.

    CONDITIONs are such as severity=warning or subscription=~".*/orders[.].*"; all of them must hold. Alerts go on to be
    judged and listed. What still fires at the end is told then.
    """
    wanted = [*match, *([f"rule={rule}"] if rule else [])]
    if not wanted:
        raise BadInput("CONDITION", "say which alerts: by --rule, or such as severity=warning; rule=~.+ means all")
    if (lasting is None) == (until is None):
        raise BadInput("--for", "either --for or --until must say how long it lasts")
    if lasting is not None and not seconds_of(lasting):
        raise BadInput("--for", f"must be how long, such as 30m, 2h or 7d, not {lasting[:64]!r}")
    if rule:
        _check_rule(process, rule)
    body = {"match": wanted, "comment": comment, "for": lasting, "endsAt": until, "startsAt": begin}
    made = process.post(f"{PATH}/silences", {name: value for name, value in body.items() if value is not None})
    _show(made, as_json=as_json)


def _check_rule(process: Sender, rule: str) -> None:
    """A silence of a name that is misspelt would keep nothing quiet."""
    names = [one["rule"] for one in process.get(f"{PATH}/rules")["rules"]]
    if rule not in names:
        raise BadInput("--rule", f"there is no rule {rule[:64]!r}{close_to(rule, names)}")


@click.command()
@click.argument("number", type=click.IntRange(1), metavar="SILENCE")
@json_option
@asking_options
def unsilence(process: Sender, number: int, as_json: bool) -> None:
    """End SILENCE, a number of `holdfast alerts silences`, now."""
    _show(process.post(f"{PATH}/silences/{number}:end"), as_json=as_json)


@click.command()
@click.option("--all", "with_old", is_flag=True, help="Also those that are over.")
@json_option
@asking_options
def silences(process: Sender, with_old: bool, as_json: bool) -> None:
    """List the silences, the newest first."""
    found = process.get(f"{PATH}/silences")["silences"]
    found = [one for one in found if with_old or one["state"] != "over"]
    if as_json:
        print_json({"silences": found})
    elif not found:
        click.echo("no silences")
    else:
        titles = ("silence", "state", "from", "until", "match", "author", "comment")
        print_table(titles, [_cells(one) for one in found], whole=True)


def _cells(one: Mapping[str, Any]) -> list[object]:
    times = (moment(one["startsAt"]), moment(one["endsAt"]))
    return [one["id"], one["state"], *times, " ".join(one["match"]), one["author"], one["comment"]]


def _show(one: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(one)
    else:
        said = f"silence {one['id']} is {one['state']}: {' '.join(one['match'])} until {moment(one['endsAt'])} UTC"
        click.echo(printable(said))


@click.command()
@click.argument("receiver")
@actor_option
@json_option
@asking_options
def test(process: Sender, receiver: str, as_json: bool) -> None:
    """Send a test to RECEIVER, by the process that would tell it."""
    result = process.post(f"{PATH}/receivers/{receiver}:test")
    if as_json:
        print_json(result)
    elif result["sent"]:
        click.echo(f"{printable(receiver)} has it")
    if not result["sent"]:
        raise HoldfastError(f"{receiver} was not told: {result['error']}")
