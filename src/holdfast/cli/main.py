"""The `holdfast` command: its groups, its help and how its errors look."""

from __future__ import annotations

import sys

import click

import holdfast
from holdfast.cli.alerts import alerts
from holdfast.cli.demo import demo
from holdfast.cli.desk import audit, failures, replay
from holdfast.cli.ingest import ingest
from holdfast.cli.load.command import load
from holdfast.cli.look import docs
from holdfast.cli.operate.held import held
from holdfast.cli.operate.messages import publish, pull
from holdfast.cli.operate.push import push
from holdfast.cli.operate.schemas import schemas
from holdfast.cli.operate.snapshots import snapshots
from holdfast.cli.operate.subscriptions import subscriptions
from holdfast.cli.operate.tail import tail
from holdfast.cli.operate.topics import topics
from holdfast.cli.output import printable
from holdfast.cli.run import broker, consume, desk, up
from holdfast.cli.top.command import top
from holdfast.cli.torture import torture
from holdfast.cli.trace import trace
from holdfast.errors import HoldfastError

# The help lists commands in the order in which a newcomer meets them.
SECTIONS = {
    "Run": (up, broker, consume, desk),
    "Try": (demo, load, torture),
    "Look": (docs,),
    "Mend": (failures, replay, audit),
    "Watch": (top, trace, alerts),
    "Operate": (topics, subscriptions, schemas, snapshots, ingest, publish, pull, tail, push, held),
}


class Sectioned(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name or "", command.get_short_help_str(80)) for command in commands])


@click.group(cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def cli() -> None:
    """Holdfast, the reliable middle of an event pipeline: a durable broker that speaks Google Pub/Sub's API, a consumer
    that turns messages into documents exactly once, and a desk for what failed.

    Start with `holdfast up`; then, in a second terminal, `holdfast demo`.

    Settings come from holdfast.toml, the environment and flags, in that order; docs/settings.md lists them.
    """


for _section in SECTIONS.values():
    for _command in _section:
        cli.add_command(_command)


def main() -> None:
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _complain(_with_help(error))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HoldfastError as error:
        _complain(str(error))
        sys.exit(1)
    except UnicodeEncodeError:  # an argument in another encoding comes as halves of characters, which no store can hold
        _complain("an argument is not valid UTF-8")
        sys.exit(1)


def _complain(what: str) -> None:
    """One line, whatever is in it."""
    click.echo("holdfast: " + printable(" ".join(what.split())), err=True)


def _with_help(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message += "" if message.endswith((".", "?", ")")) else "."
        message += f" Try `{error.ctx.command_path} --help`"
    return message
