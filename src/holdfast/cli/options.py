"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.settings import Settings, load_settings

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """Its help tells the whole first sentence of each command, on two lines if need be."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=1000)) for name in names])


def config_option(command: Command) -> Command:
    return click.option(
        "--config", type=click.Path(path_type=Path), help="Settings file.  [default: holdfast.toml, if there]"
    )(command)


def data_options(command: Command) -> Command:
    command = click.option("--memory", is_flag=True, default=None, help="Keep everything in memory instead.")(command)
    return click.option("--data", metavar="DIR", help="Directory for all files.  [default: .holdfast]")(command)


def strict_option(command: Command) -> Command:
    return click.option(
        "--strict", is_flag=True, default=None, help="Behave exactly as Cloud Pub/Sub, without our additions."
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def settings_from(config: Path | None, **flags: object) -> Settings:
    """Flags are named as settings, with __ for the dot: broker__port is broker.port."""
    return load_settings({name.replace("__", "."): value for name, value in flags.items()}, config=config)
