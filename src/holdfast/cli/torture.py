"""`holdfast torture`: reads the options, runs, and tells."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.cli.options import json_option
from holdfast.cli.output import myself, print_json, print_table, printable
from holdfast.errors import BadInput
from holdfast.torture import schedule
from holdfast.torture.report import TITLES, plan_to_json, rows, to_json
from holdfast.torture.run import Asked, Result
from holdfast.torture.run import torture as torture_once

# Of each check, told one by one; the history has the rest.
SHOWN = 20

_SEED = click.IntRange(0, 2**53)


@click.command()
@click.option("--seed", type=_SEED, help="The same seed gives the same faults and messages.  [default: a new one]")
@click.option(
    "--minutes",
    type=click.FloatRange(0.1, 7 * 24 * 60),
    default=1.0,
    show_default=True,
    help="How long there are faults. Until all is settled takes up to a minute or two more.",
)
@click.option(
    "--fault",
    "kinds",
    type=click.Choice(schedule.KINDS),
    multiple=True,
    metavar="KIND",
    help="Only faults of this kind, such as `power cut`. May be repeated; docs/torture.md lists them.",
)
@click.option("--no-postgres", is_flag=True, help="Keep documents in SQLite alone, also where PostgreSQL is installed.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="An absent or empty folder for history, data and logs. Without it they are kept only if something was found.",
)
@click.option("--plan", is_flag=True, help="Only show which faults there would be.")
@json_option
def torture(
    seed: int | None,
    minutes: float,
    kinds: Sequence[str],
    no_postgres: bool,
    keep: Path | None,
    plan: bool,
    as_json: bool,
) -> None:
    """Break Holdfast in all known ways, and check that it keeps its promises.

    Starts a broker, two consumers and a desk of its own, in a folder and on ports of its own; kills and stops them,
    fills their disks, cuts their power, breaks their connections. Nothing else on this machine is touched.

    It ends with 1 when something was lost, came twice, out of order or never. docs/torture.md tells all.
    """
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    asked = Asked(seed, minutes * 60, kinds or schedule.KINDS, with_postgres=not no_postgres)
    if plan:
        _show_plan(asked, as_json)
        return
    folder = _folder(keep)
    if not as_json:
        click.echo(f"seed {seed}, {minutes:g} minutes; history, data and logs in {folder}")
    ended_well = False
    try:
        result = asyncio.run(_until_told(asked, folder))
        ended_well = not result.verdict.violations
    finally:
        if ended_well and keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(to_json(result))
    else:
        _show(result)
    sys.exit(0 if ended_well else 1)


async def _until_told(asked: Asked, folder: Path) -> Result:
    """Whoever ends it, all that it has started ends with it."""
    task = asyncio.create_task(torture_once(asked, folder, _progress))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise click.Abort from None


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
    keep = keep.absolute()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_empty = not any(keep.iterdir())
    except OSError as error:
        raise BadInput("--keep", f"{keep}: {error.strerror}") from error
    if not is_empty:
        raise BadInput("--keep", f"{keep} is not empty")
    return keep


def _progress(text: str) -> None:
    """For people who wait; the result is on standard output."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K  {printable(text)[:100]}", nl=False, err=True)


def _show_plan(asked: Asked, as_json: bool) -> None:
    faults = asked.planned()
    if as_json:
        print_json({"seed": asked.seed, "faults": plan_to_json(faults)})
        return
    click.echo(f"seed {asked.seed}")
    told = [(f"{fault.at:.1f}", f"{fault.seconds:.1f}", fault.kind, fault.target, _details(fault)) for fault in faults]
    print_table(("at", "seconds", "fault", "target", "how"), told)


def _details(fault: schedule.Fault) -> str:
    return ", ".join(_detail(name, value) for name, value in fault.details.items() if name != "chance")


def _detail(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {' and '.join(value) if isinstance(value, list | tuple) else value}"


def _show(result: Result) -> None:
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    counts = result.counts
    click.echo(
        f"{counts['messages']:,} messages published, {counts['deliveries']:,} deliveries to the lab, "
        f"{counts['deadLetters']:,} dead letters, {counts['replays']:,} replays, {counts['starts']:,} starts of parts, "
        f"{result.seconds:.0f} seconds"
    )
    print_table(TITLES, rows(result), whole=True)
    violations = result.verdict.violations
    if not violations:
        click.echo("Nothing was lost, nothing came twice, nothing came out of order, nothing is stuck.")
        return
    for violation in violations[:SHOWN]:
        click.echo(f"{violation.at:8.1f} s  {violation.check}: {printable(violation.text)}")
    if len(violations) > SHOWN:
        click.echo(f"… and {len(violations) - SHOWN} more")
    click.echo(f"The history is in {result.history}, data and logs beside it. The same again:")
    click.echo(f"  {myself()} torture --seed {result.asked.seed} --minutes {result.asked.seconds / 60:g}")
