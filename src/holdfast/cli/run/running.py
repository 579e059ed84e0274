"""Starts a process, says what runs where, stops it cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import click
import uvloop

import holdfast
from holdfast.settings import Settings
from holdfast.telemetry import configure_logging, spare_what_no_line_shows
from holdfast.wiring.processes.running import Running

About = Callable[[Settings, Running], list[str]]

MOST_OPEN_FILES = 65_536


def run_until_told(settings: Settings, part: AbstractAsyncContextManager[Running], about: About) -> None:
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


async def _until_told(settings: Settings, part: AbstractAsyncContextManager[Running], about: About) -> None:
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


def title(what: str, settings: Settings) -> str:
    where = "in memory" if settings.general.memory else f"in {settings.general.data}"
    return f"Holdfast {holdfast.__version__} {what}. Data {where}; Ctrl-C stops it."


def broker_lines(settings: Settings, running: Running) -> list[str]:
    strict = ", strict" if settings.broker.strict else ""
    address = f"{settings.broker.host}:{running.broker_port}"
    lines = [f"  broker    {address}  (Pub/Sub API over gRPC and REST, project {settings.general.project}{strict})"]
    if settings.broker.grpc_port:
        lines.append(f"  gRPC      {settings.broker.host}:{settings.broker.grpc_port}  (gRPC alone)")
    return lines


def clients_lines(settings: Settings, running: Running) -> list[str]:
    return [
        "Point Pub/Sub clients at it:",
        f"  export PUBSUB_EMULATOR_HOST={settings.broker.host}:{running.broker_port}",
    ]


def url(settings: Settings, running: Running) -> str:
    return f"http://{settings.http.host}:{running.http_port}"
