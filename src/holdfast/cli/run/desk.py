"""`holdfast desk`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import config_option, data_options, settings_from
from holdfast.cli.run.running import run_until_told, title, url
from holdfast.settings import Settings
from holdfast.wiring.processes.desk import running_desk
from holdfast.wiring.processes.running import Running


@click.command()
@data_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port of the HTTP API.  [default: 8080]")
@click.option("--failures", metavar="URL", help="Failure store.  [default: sqlite:///.holdfast/failures.db]")
@config_option
def desk(
    data: str | None,
    memory: bool | None,
    host: str | None,
    port: int | None,
    failures: str | None,
    config: Path | None,
) -> None:
    """Run the dead-letter desk alone.

    The broker is found by PUBSUB_EMULATOR_HOST; without that it is Cloud Pub/Sub.
    """
    settings = settings_from(
        config, data=data, memory=memory, http__host=host, http__port=port, desk__failures=failures
    )
    run_until_told(settings, running_desk(settings), _about_desk)


def _about_desk(settings: Settings, running: Running) -> list[str]:
    return [title("desk is up", settings), f"  failures  {url(settings, running)}/api/v1/failures"]
