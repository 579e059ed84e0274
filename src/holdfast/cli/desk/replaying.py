"""`holdfast replay plan`, `start`, `pause`, `resume` and `cancel`, and `holdfast failures replay`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.cli.desk.asking import Sender, acting_options
from holdfast.cli.desk.replay_progress import follow, print_replay
from holdfast.cli.desk.selecting import selection_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table, printable
from holdfast.deadletter.replay.jobs import Target
from holdfast.errors import BadInput
from holdfast.model.names import short_id

PATH = "/api/v1/replays"

replay_argument = click.argument("replay_id", metavar="REPLAY", type=click.IntRange(1))
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
watch_option = click.option("--watch/--no-watch", default=None, help="Follow it to its end.  [default: on a terminal]")

_OPTIONS = (
    click.option(
        "--target",
        type=click.Choice(tuple(map(str, Target))),
        help="Where to.  [default: the failing subscription]",
    ),
    click.option("--to-topic", metavar="NAME", help="The topic, for --target topic."),
    click.option("--per-second", type=float, metavar="N", help="A second at most; 0: no bound.  [default: 50]"),
    click.option("--concurrency", type=int, metavar="N", help="Out at once at most; 0: no bound.  [default: 100]"),
    click.option("--canary", type=int, metavar="N", help="So many go first; 0: none.  [default: 1]"),
    click.option("--stop-above", type=float, metavar="SHARE", help="Pause when more have failed.  [default: 0.5]"),
    click.option("--stop-after", type=int, metavar="N", help="… but not before so many ended.  [default: 10]"),
)

_NAMES = {
    "target": "target",
    "to_topic": "topic",
    "per_second": "perSecond",
    "concurrency": "concurrency",
    "canary": "canary",
    "stop_above": "stopAbove",
    "stop_after": "stopAfter",
}


def replay_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them; the command gets those that were given as `wanted`, as the API names them."""

    @functools.wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        given = {name: options.pop(option) for option, name in _NAMES.items()}
        command(*args, wanted={name: value for name, value in given.items() if value is not None}, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


@click.command()
@selection_options
@replay_options
@json_option
@acting_options
def plan(desk: Sender, selection: Mapping[str, Any], wanted: Mapping[str, Any], as_json: bool) -> None:
    """Show what a replay of a selection would do. Nothing is written or sent."""
    found = _plan(desk, selection, wanted)
    if as_json:
        print_json(found)
    else:
        _print_plan(found)


@click.command()
@click.argument("replay_id", metavar="[REPLAY]", type=click.IntRange(1), required=False)
@selection_options
@replay_options
@yes_option
@watch_option
@json_option
@acting_options
def start(
    desk: Sender,
    replay_id: int | None,
    selection: Mapping[str, Any],
    wanted: Mapping[str, Any],
    yes: bool,
    watch: bool | None,
    as_json: bool,
) -> None:
    """Send a selection again, or start the planned REPLAY. Says what it will do, and asks before more than one message
    is sent."""
    if replay_id is None:
        begin(desk, selection, wanted, yes, watch, as_json)
    elif selection or wanted:
        raise BadInput("REPLAY", "has its selection and options already: name it alone")
    else:
        _told(desk, desk.post(f"{PATH}/{replay_id}:start"), watch, as_json)


@click.command("replay")
@click.argument("ids", metavar="ID...", type=click.IntRange(1), nargs=-1, required=True)
@replay_options
@yes_option
@watch_option
@json_option
@acting_options
def replay_failures(
    desk: Sender, ids: tuple[int, ...], wanted: Mapping[str, Any], yes: bool, watch: bool | None, as_json: bool
) -> None:
    """Send these failed messages again: the short way to `holdfast replay start --id ID`."""
    begin(desk, {"id": list(ids)}, wanted, yes, watch, as_json)


def begin(
    desk: Sender,
    selection: Mapping[str, Any],
    wanted: Mapping[str, Any],
    yes: bool,
    watch: bool | None,
    as_json: bool,
) -> None:
    found = _plan(desk, selection, wanted)
    if not as_json:
        _print_plan(found)
    if not found["toSend"]:
        why = "none of the {selected:,} selected failures can be sent" if found["selected"] else "selects no failure"
        raise BadInput("selection", why.format(**found))
    if found["toSend"] > 1 and not yes:
        _ask(found["toSend"], as_json)
    created = desk.post(PATH, {"selection": selection, "options": wanted})
    _told(desk, desk.post(f"{PATH}/{created['id']}:start"), watch, as_json)


def _ask(count: int, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise BadInput("--yes", f"is needed to send {count} messages where nobody can be asked")
    click.confirm(f"Send {count:,} messages?", abort=True)


@click.command()
@replay_argument
@json_option
@acting_options
def pause(desk: Sender, replay_id: int, as_json: bool) -> None:
    """Pause a replay. What is out stays out."""
    _told(desk, desk.post(f"{PATH}/{replay_id}:pause"), False, as_json)


@click.command()
@replay_argument
@watch_option
@json_option
@acting_options
def resume(desk: Sender, replay_id: int, watch: bool | None, as_json: bool) -> None:
    """Resume a replay. Its canary and the share that may fail count from here."""
    _told(desk, desk.post(f"{PATH}/{replay_id}:resume"), watch, as_json)


@click.command()
@replay_argument
@json_option
@acting_options
def cancel(desk: Sender, replay_id: int, as_json: bool) -> None:
    """Cancel a replay for good. What is out stays out, and the rest stays as it is."""
    _told(desk, desk.post(f"{PATH}/{replay_id}:cancel"), False, as_json)


def _told(desk: Sender, replay: Mapping[str, Any], watch: bool | None, as_json: bool) -> None:
    if watch or (watch is None and not as_json and sys.stderr.isatty()):
        replay = follow(lambda: desk.get(f"{PATH}/{replay['id']}"))
    if as_json:
        print_json(replay)
    else:
        print_replay(replay)


def _plan(desk: Sender, selection: Mapping[str, Any], wanted: Mapping[str, Any]) -> Any:
    return desk.post(PATH, {"selection": selection, "options": wanted, "dryRun": True})


def _print_plan(found: Mapping[str, Any]) -> None:
    options = found["options"]
    seconds = f", about {found['seconds']:,.0f} s at {options['perSecond']:g}/s" if found["seconds"] else ""
    done = "tried, and nothing sent" if options["target"] == "shadow" else "sent"
    click.echo(f"{found['toSend']:,} of {found['selected']:,} selected failures would be {done}{seconds}")
    if found["toSend"] and options["canary"]:
        click.echo(f"{min(options['canary'], found['toSend']):,} first, the rest only when they ended well")
    for name, rows in (("to", found["destinations"]), ("not sent", found["skipped"])):
        for row in rows:
            click.echo(printable(f"  {name}: {row.get('name') or row.get('why')}: {row['count']:,}"))
    if found["groups"]:
        click.echo()
        print_table(("group", "count", "reason", "subscription"), [_group_cells(group) for group in found["groups"]])


def _group_cells(group: Mapping[str, Any]) -> list[object]:
    return [group["group"], group["count"], group["reason"], short_id(group["subscription"]) or "(ingest)"]
