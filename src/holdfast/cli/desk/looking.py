"""`holdfast failures list`, `show` and `count`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.desk.asking import Reader, limit_option, moment, reading_options
from holdfast.cli.desk.selecting import selection_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_fields, print_json, print_table
from holdfast.cli.values import flat
from holdfast.deadletter.selecting import query_from_form
from holdfast.model.failed_message import FailureStatus
from holdfast.model.names import short_id

PATH = "/api/v1/failures"

_TITLES = ("id", "created", "reason", "status", "subscription", "error")
_STATUSES = tuple(FailureStatus)

_APART = ("revisions",)  # has a command of its own


@click.command("list")
@selection_options
@limit_option
@json_option
@reading_options
def list_failures(reader: Reader, selection: Mapping[str, Any], limit: int, as_json: bool) -> None:
    """List failed messages, newest first: all of them, or those that the options select."""
    found = reader.pages(PATH, query_from_form(selection), "failures", limit)
    if as_json:
        print_json({"failures": found})
    elif not found:
        click.echo("no failed messages")
    else:
        print_table(_TITLES, [_cells(failure) for failure in found])
        click.echo("\n`holdfast failures show ID` shows one of them whole.")


def _cells(failure: Mapping[str, Any]) -> list[object]:
    return [
        failure["id"],
        moment(failure["createdAt"]),
        failure["failureReason"],
        failure["status"],
        short_id(failure["subscription"]) or f"(ingest of {short_id(failure['sourceTopic'])})",
        failure["errorDetails"],
    ]


@click.command()
@click.argument("failure_id", metavar="ID", type=int)
@json_option
@reading_options
def show(reader: Reader, failure_id: int, as_json: bool) -> None:
    """Show one failed message whole, with its payload."""
    failure = reader.get(f"{PATH}/{failure_id}")
    if as_json:
        print_json(failure)
    else:
        told = {
            name: value for name, value in failure.items() if value not in (None, "", {}, []) and name not in _APART
        }
        print_fields(flat(told))
        if failure["revision"]:
            click.echo(
                f"\nThis is the original. Revision {failure['revision']} is what is sent: "
                f"`holdfast failures diff {failure_id}` shows what differs, `holdfast failures revisions {failure_id}` "
                "who has edited it."
            )


@click.command()
@selection_options
@json_option
@reading_options
def count(reader: Reader, selection: Mapping[str, Any], as_json: bool) -> None:
    """Count failed messages: all of them by reason and status, or those that the options select."""
    if selection:
        _count_selected(reader, selection, as_json)
    else:
        _count_all(reader, as_json)


def _count_selected(reader: Reader, selection: Mapping[str, Any], as_json: bool) -> None:
    found = reader.get(PATH, [*query_from_form(selection), ("pageSize", "1")])
    if as_json:
        print_json({name: found[name] for name in ("count", "countIsExact")})
    else:
        click.echo(f"{'' if found['countIsExact'] else 'more than '}{found['count']}")


def _count_all(reader: Reader, as_json: bool) -> None:
    counts = reader.get(f"{PATH}/counts")
    if as_json:
        print_json(counts)
        return
    rows = [_count_cells(reason, by_status) for reason, by_status in counts["byReason"].items()]
    print_table(["reason", *_STATUSES, "total"], [*rows, _count_cells("TOTAL", counts["byStatus"])])


def _count_cells(name: str, by_status: Mapping[str, int]) -> list[object]:
    return [name, *(by_status[status] for status in _STATUSES), sum(by_status.values())]
