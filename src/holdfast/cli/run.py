"""`holdfast up`, and each of its parts alone: start, say what runs where, stop cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import click
import uvloop

import holdfast
from holdfast.cli.options import config_option, data_options, settings_from, strict_option
from holdfast.cli.output import myself
from holdfast.settings import Settings
from holdfast.telemetry import configure_logging, spare_what_no_line_shows
from holdfast.wiring import processes
from holdfast.wiring.processes import Running

_About = Callable[[Settings, Running], list[str]]

MOST_OPEN_FILES = 65_536


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
    _run(settings, processes.running_up(settings), _about_up)


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
    _run(settings, processes.running_broker(settings), _about_broker)


@click.command()
@click.argument("app", metavar="[MODULE:APP]", default="")
@data_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port of the push endpoint and the HTTP API.  [default: 8080]")
@click.option("--store", metavar="URL", help="Document store.  [default: sqlite:///.holdfast/documents.db]")
@click.option(
    "--pull", metavar="SUBSCRIPTION", multiple=True, help="Also pull from this subscription. May be repeated."
)
@config_option
def consume(
    app: str,
    data: str | None,
    memory: bool | None,
    host: str | None,
    port: int | None,
    store: str | None,
    pull: Sequence[str],
    config: Path | None,
) -> None:
    """Run the consumer alone.

    MODULE:APP names a holdfast.consumer.Consumer of yours, such as shop.events:app. Without it the built-in
    materializer runs. The broker is found by PUBSUB_EMULATOR_HOST; without that it is Cloud Pub/Sub.
    """
    settings = settings_from(config, data=data, memory=memory, http__host=host, http__port=port, consumer__store=store)
    _run(settings, processes.running_consumer(settings, app, pull), partial(_about_consumer, pull))


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
    _run(settings, processes.running_desk(settings), _about_desk)


# Running.


def _run(settings: Settings, part: AbstractAsyncContextManager[Running], about: _About) -> None:
    configure_logging(settings.general.log_format, settings.general.log_level)
    spare_what_no_line_shows()
    # Nothing that a message leaves behind is a cycle; looking for some after every 700 objects took a fifteenth of the
    # time that publishing takes. What was imported is not looked at again at all.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    _allow_many_connections()
    uvloop.run(_until_told(settings, part, about))


def _allow_many_connections() -> None:
    """Most systems give a process 1,024 open files and let it ask for more; a thousand endpoints need more."""
    wanted, (soft, hard) = MOST_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _until_told(settings: Settings, part: AbstractAsyncContextManager[Running], about: _About) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    async with part as running:
        click.echo("\n".join(about(settings, running)))
        await told.wait()
        click.echo("stopping …")
    click.echo("stopped; everything is saved" if not settings.general.memory else "stopped")


# What a person reads after the start.


def _about_up(settings: Settings, running: Running) -> list[str]:
    return [
        _title("is up", settings),
        *_broker_lines(settings, running),
        f"  consumer  {_url(settings, running)}/pubsub/push",
        f"  desk      {_url(settings, running)}/api/v1/failures",
        *_clients_lines(settings, running),
        "Try next, in a second terminal:",
        f"  {myself()} demo{_demo_flags(settings, running)}",
    ]


def _about_broker(settings: Settings, running: Running) -> list[str]:
    return [
        _title("broker is up", settings),
        *_broker_lines(settings, running),
        *_clients_lines(settings, running),
    ]


def _about_consumer(pull: Sequence[str], settings: Settings, running: Running) -> list[str]:
    return [
        _title("consumer is up", settings),
        f"  push endpoint  {_url(settings, running)}/pubsub/push",
        *(f"  pulls from     {name}" for name in pull),
        f"  documents      {_url(settings, running)}/api/v1/documents",
    ]


def _about_desk(settings: Settings, running: Running) -> list[str]:
    return [_title("desk is up", settings), f"  failures  {_url(settings, running)}/api/v1/failures"]


def _title(what: str, settings: Settings) -> str:
    where = "in memory" if settings.general.memory else f"in {settings.general.data}"
    return f"Holdfast {holdfast.__version__} {what}. Data {where}; Ctrl-C stops it."


def _broker_lines(settings: Settings, running: Running) -> list[str]:
    strict = ", strict" if settings.broker.strict else ""
    address = f"{settings.broker.host}:{running.broker_port}"
    lines = [f"  broker    {address}  (Pub/Sub API over gRPC and REST, project {settings.general.project}{strict})"]
    if settings.broker.grpc_port:
        lines.append(f"  gRPC      {settings.broker.host}:{settings.broker.grpc_port}  (gRPC alone)")
    return lines


def _clients_lines(settings: Settings, running: Running) -> list[str]:
    return [
        "Point Pub/Sub clients at it:",
        f"  export PUBSUB_EMULATOR_HOST={settings.broker.host}:{running.broker_port}",
    ]


def _url(settings: Settings, running: Running) -> str:
    return f"http://{settings.http.host}:{running.http_port}"


def _demo_flags(settings: Settings, running: Running) -> str:
    defaults = Settings()
    flags = ""
    if (settings.broker.host, running.broker_port) != (defaults.broker.host, defaults.broker.port):
        flags += f" --broker {settings.broker.host}:{running.broker_port}"
    if (settings.http.host, running.http_port) != (defaults.http.host, defaults.http.port):
        flags += f" --url {_url(settings, running)}"
    return flags
