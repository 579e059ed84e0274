"""`holdfast broker`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import config_option, data_options, settings_from, strict_option
from holdfast.cli.run.running import broker_lines, clients_lines, run_until_told, title
from holdfast.settings import Settings
from holdfast.wiring.processes.broker import running_broker
from holdfast.wiring.processes.running import Running


@click.command()
@data_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port of the Pub/Sub API, gRPC and REST.  [default: 8085]")
@click.option("--grpc-port", type=int, help="A second port, for gRPC alone.  [default: none]")
@strict_option
@config_option
def broker(
    data: str | None,
    memory: bool | None,
    host: str | None,
    port: int | None,
    grpc_port: int | None,
    strict: bool | None,
    config: Path | None,
) -> None:
    """Run the broker alone."""
    settings = settings_from(
        config,
        data=data,
        memory=memory,
        broker__host=host,
        broker__port=port,
        broker__grpc_port=grpc_port,
        broker__strict=strict,
    )
    run_until_told(settings, running_broker(settings), _about_broker)


def _about_broker(settings: Settings, running: Running) -> list[str]:
    return [
        title("broker is up", settings),
        *broker_lines(settings, running),
        *clients_lines(settings, running),
    ]
