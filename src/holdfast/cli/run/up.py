"""`holdfast up`: everything in one process."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import config_option, data_options, settings_from, strict_option
from holdfast.cli.output import myself
from holdfast.cli.run.running import broker_lines, clients_lines, run_until_told, title, url
from holdfast.settings import Settings
from holdfast.wiring.processes.running import Running
from holdfast.wiring.processes.up import running_up


@click.command()
@data_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--broker-port", type=int, help="Port of the Pub/Sub API.  [default: 8085]")
@click.option("--port", type=int, help="Port of the push endpoint and the HTTP API.  [default: 8080]")
@strict_option
@config_option
def up(
    data: str | None,
    memory: bool | None,
    host: str | None,
    broker_port: int | None,
    port: int | None,
    strict: bool | None,
    config: Path | None,
) -> None:
    """Run broker, consumer and desk in one process."""
    settings = settings_from(
        config,
        data=data,
        memory=memory,
        broker__host=host,
        http__host=host,
        broker__port=broker_port,
        http__port=port,
        broker__strict=strict,
    )
    run_until_told(settings, running_up(settings), _about_up)


def _about_up(settings: Settings, running: Running) -> list[str]:
    return [
        title("is up", settings),
        *broker_lines(settings, running),
        f"  consumer  {url(settings, running)}/pubsub/push",
        f"  desk      {url(settings, running)}/api/v1/failures",
        *clients_lines(settings, running),
        "Try next, in a second terminal:",
        f"  {myself()} demo{_demo_flags(settings, running)}",
    ]


def _demo_flags(settings: Settings, running: Running) -> str:
    defaults = Settings()
    flags = ""
    if (settings.broker.host, running.broker_port) != (defaults.broker.host, defaults.broker.port):
        flags += f" --broker {settings.broker.host}:{running.broker_port}"
    if (settings.http.host, running.http_port) != (defaults.http.host, defaults.http.port):
        flags += f" --url {url(settings, running)}"
    return flags
