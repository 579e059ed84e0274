"""`holdfast replay list`, `show` and `watch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.cli.desk.asking import Sender, acting_options, limit_option, moment
from holdfast.cli.desk.replay_progress import follow, print_replay
from holdfast.cli.desk.replaying import PATH, replay_argument
from holdfast.cli.options import json_option
from holdfast.cli.output import print_fields, print_json, print_table
from holdfast.cli.values import flat
from holdfast.deadletter.replay.jobs import ItemState, JobState

_TITLES = ("replay", "created", "state", "total", "pending", "sent", "succeeded", "failed", "skipped", "by")
_ITEM_TITLES = ("failure", "state", "message", "sent", "note")


@click.command("list")
@click.option(
    "--state", type=click.Choice(tuple(map(str, JobState))), multiple=True, help="In this state. May be repeated."
)
@limit_option
@json_option
@acting_options
def list_replays(desk: Sender, state: Sequence[str], limit: int, as_json: bool) -> None:
    """List replays, newest first."""
    found = desk.pages(PATH, [("state", one) for one in state], "replays", limit)
    if as_json:
        print_json({"replays": found})
    elif not found:
        click.echo("no replays")
    else:
        print_table(_TITLES, [_cells(replay) for replay in found])


def _cells(replay: Mapping[str, Any]) -> list[object]:
    counts = [replay["counts"][state] for state in ItemState]
    return [replay["id"], moment(replay["createdAt"]), replay["state"], replay["total"], *counts, replay["actor"]]


@click.command()
@replay_argument
@click.option("--items", is_flag=True, help="Its messages: those that failed or were skipped, or those of --state.")
@click.option("--state", type=click.Choice(tuple(map(str, ItemState))), multiple=True, help="Messages in this state.")
@limit_option
@json_option
@acting_options
def show(desk: Sender, replay_id: int, items: bool, state: Sequence[str], limit: int, as_json: bool) -> None:
    """Show one replay, or its messages."""
    if items or state:
        _show_items(desk, replay_id, state or [str(ItemState.FAILED), str(ItemState.SKIPPED)], limit, as_json)
        return
    replay = desk.get(f"{PATH}/{replay_id}")
    report = desk.get(f"{PATH}/{replay_id}/shadow") if replay["options"]["target"] == "shadow" else {}
    whole = {**replay, **({"shadow": report} if report else {})}
    if as_json:
        print_json(whole)
    else:
        print_fields(flat({name: value for name, value in whole.items() if value not in (None, "", {}, [])}))


def _show_items(desk: Sender, replay_id: int, states: Sequence[str], limit: int, as_json: bool) -> None:
    found = desk.pages(f"{PATH}/{replay_id}/items", [("state", one) for one in states], "items", limit)
    if as_json:
        print_json({"items": found})
    elif not found:
        click.echo("no messages")
    else:
        rows = [[one["failureId"], one["state"], one["messageId"], moment(one["sentAt"]), one["note"]] for one in found]
        print_table(_ITEM_TITLES, rows, whole=True)


@click.command()
@replay_argument
@json_option
@acting_options
def watch(desk: Sender, replay_id: int, as_json: bool) -> None:
    """Follow a replay until it is over or paused."""
    replay = follow(lambda: desk.get(f"{PATH}/{replay_id}"))
    if as_json:
        print_json(replay)
    else:
        print_replay(replay)
