"""Where the commands of alerts ask: a running process, which is the only one that knows its alerts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from holdfast.cli.desk.asking import Sender, myself, own_url
from holdfast.cli.options import config_option, settings_from

PATH = "/api/v1/alerts"

Command = Callable[..., None]


def asking_options(command: Command) -> Command:
    """Adds --url and --config; the command gets what they mean as `process`."""

    @click.option("--url", help="The running process.  [default: http.host:http.port, http://127.0.0.1:8080]")
    @config_option
    @functools.wraps(command)
    def with_process(
        *args: Any, url: str | None, config: Path | None, actor: str | None = None, **options: Any
    ) -> None:
        settings = settings_from(config)
        headers = {"Holdfast-Actor": actor or myself()}
        command(*args, process=Sender(url or own_url(settings), headers), **options)

    return with_process


actor_option = click.option("--actor", metavar="NAME", help="Who does it.  [default: cli:<your user name>]")
