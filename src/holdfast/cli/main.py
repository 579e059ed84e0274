"""The `holdfast` command: its groups, its help and how its errors look."""

from __future__ import annotations

import sys
from importlib import import_module

import click

import holdfast
from holdfast.cli.output import printable
from holdfast.errors import HoldfastError

# The help lists commands in the order in which a newcomer meets them. Each is in a module of this package, which is
# loaded when somebody asks for it: the broker is up sooner for not loading the desk.
SECTIONS = {
    "Run": {"up": "run.up", "broker": "run.broker", "consume": "run.consume", "desk": "run.desk"},
    "Try": {"demo": "demo", "load": "load.command", "torture": "torture"},
    "Look": {"docs": "look"},
    "Mend": {"failures": "desk", "replay": "desk", "audit": "desk"},
    "Watch": {"top": "top.command", "trace": "trace", "alerts": "alerts"},
    "Operate": {
        "topics": "operate.topics",
        "subscriptions": "operate.subscriptions",
        "schemas": "operate.schemas",
        "snapshots": "operate.snapshots",
        "ingest": "ingest",
        "publish": "operate.messages",
        "pull": "operate.messages",
        "tail": "operate.tail",
        "push": "operate.push",
        "held": "operate.held",
    },
}
MODULES = {name: module for section in SECTIONS.values() for name, module in section.items()}


class Sectioned(click.Group):
    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in MODULES:
            self.add_command(getattr(import_module(f"holdfast.cli.{MODULES[cmd_name]}"), cmd_name))
        return self.commands.get(cmd_name)

    def load_all(self) -> None:
        for name in MODULES:
            self.get_command(None, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.load_all()
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in names])


@click.group(cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def cli() -> None:
    """Holdfast, the reliable middle of an event pipeline: a durable broker that speaks Google Pub/Sub's API, a consumer
    that turns messages into documents exactly once, and a desk for what failed.

    Start with `holdfast up`; then, in a second terminal, `holdfast demo`.

    Settings come from holdfast.toml, the environment and flags, in that order; docs/settings.md lists them.
    """


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
