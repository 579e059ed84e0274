"""The commands of the dead-letter desk: `holdfast failures`, `holdfast replay` and `holdfast audit`."""

from __future__ import annotations

import click

from holdfast.cli.desk import (
    auditing,
    bulk,
    cleaning,
    editing,
    exchanging,
    grouping,
    looking,
    replaying,
    replays,
    shadowing,
    statistics,
)
from holdfast.cli.options import Commands


@click.group(cls=Commands)
def failures() -> None:
    """Find failed messages, and act on them."""


@click.group(cls=Commands)
def replay() -> None:
    """Send failed messages again, at a steady rate."""


@click.group(cls=Commands)
def audit() -> None:
    """See who did what."""


for _command in (
    looking.list_failures,
    looking.show,
    looking.count,
    statistics.stats,
    cleaning.clean_up,
    grouping.groups,
    grouping.group,
    grouping.ack,
    grouping.resolve,
    grouping.reopen,
    grouping.assign,
    grouping.comment,
    editing.edit,
    editing.revisions,
    editing.diff,
    editing.validate,
    bulk.patch,
    bulk.hold,
    bulk.release,
    bulk.erase,
    exchanging.export_failures,
    exchanging.import_failures,
    replaying.replay_failures,
):
    failures.add_command(_command)

for _command in (
    replaying.plan,
    replaying.start,
    replays.list_replays,
    replays.show,
    replaying.pause,
    replaying.resume,
    replaying.cancel,
    replays.watch,
    shadowing.shadow,
):
    replay.add_command(_command)

for _command in (auditing.list_entries, auditing.verify):
    audit.add_command(_command)
