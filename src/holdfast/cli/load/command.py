"""`holdfast load`: reads the options, runs, and tells."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from holdfast.cli.load.endpoint import Endpoint
from holdfast.cli.load.limit import Limit, Search, find_limit
from holdfast.cli.load.options import Job, Options, checked
from holdfast.cli.load.page import limit_page, run_page
from holdfast.cli.load.progress import Progress
from holdfast.cli.load.result import limit_as_json, run_as_json
from holdfast.cli.load.run import Load, Plan, Run, prepare_process
from holdfast.cli.load.text import limit_lines, run_lines
from holdfast.cli.load.verdicts import exit_code
from holdfast.cli.options import config_option, json_option
from holdfast.cli.output import print_json, printable
from holdfast.errors import StorageUnavailable

_SECONDS = click.FloatRange(min=0.1, max=86_400)


@click.command()
@click.option("--url", help="Push endpoint.  [default: http://127.0.0.1:8080/pubsub/push]")
@click.option("--requests", type=click.IntRange(min=1), help="End after so many.  [default: 2000, or see --duration]")
@click.option("--duration", type=_SECONDS, metavar="SECONDS", help="End after so long; of --find-limit: 120.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="Most connections, and so requests that wait for answers at once.  [default: 100; of --find-limit: 1000]",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True, max=1_000_000),
    help="Send so many a second, however slow the answers. Without it, each answer lets the next request go.",
)
@click.option("--topic", help="The attribute `topic`, and which payloads are made up.  [default: system.events]")
@click.option("--subscription", default="projects/local/subscriptions/loadtest", show_default=True, help="Full path.")
@click.option(
    "--payload",
    type=click.Path(path_type=Path),
    help="A JSON object to send, or a file of one on each line to send in turn. Topics of your own need it.",
)
@click.option("--payload-bytes", type=click.IntRange(1, 9_000_000), help="Pad payloads that are made up to so many.")
@click.option(
    "--services", type=click.IntRange(1, 1_000_000), help="Different services, pipelines or symbols.  [default: 1000]"
)
@click.option(
    "--duplicates",
    type=click.FloatRange(0, 100),
    default=0.0,
    metavar="PERCENT",
    help="So many of the requests bring an earlier message again.",
)
@click.option("--delivery-attempt", is_flag=True, help="Add deliveryAttempt, as where there is a dead-letter policy.")
@click.option("--token", help="Bearer token. Other users of the machine can see it; --token-file hides it.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File that holds it.")
@click.option(
    "--timeout", type=_SECONDS, default=10.0, show_default=True, metavar="SECONDS", help="Longest wait for an answer."
)
@click.option("--seed", type=int, help="Make up the same payloads again. Message ids are new in every run.")
@click.option(
    "--find-limit", is_flag=True, help="Raise the rate step by step, from --rate or 200, and name what is safe."
)
@click.option(
    "--max-p99",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Of --find-limit: the slowest that is safe.  [default: 200]",
)
@click.option(
    "--max-errors",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Of --find-limit: how many may be not accepted.  [default: 0]",
)
@click.option("--step-seconds", type=_SECONDS, metavar="SECONDS", help="Of --find-limit: of each step.  [default: 3]")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.html",
    help="Write a page.",
)
@json_option
@config_option
def load(**given: Any) -> None:
    """Push messages at an endpoint as Pub/Sub would, and see what it bears.

    Exit code: 0 when every answer was 2xx or 429 (backpressure is how it should be), 1 when there were others, or
    requests without an answer; with --find-limit 0 when a safe limit was found. Ctrl-C ends it with what is known.
    """
    options = Options(**given)
    job = checked(options)
    prepare_process(job.plan.concurrency)
    sys.exit(uvloop.run(_load(job, options)))


async def _load(job: Job, options: Options) -> int:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    endpoint = await Endpoint.find(job.target, job.head)
    try:
        runner = _Runner(job, endpoint, told_to_stop, Progress(silent=options.as_json))
        if job.bounds is None:
            return _tell_run(await runner.run(job.plan), job, options)
        return _tell_limit(await runner.find_limit(), job, options)
    finally:
        await endpoint.close()


class _Runner:
    def __init__(self, job: Job, endpoint: Endpoint, told_to_stop: asyncio.Event, progress: Progress) -> None:
        self._job = job
        self._endpoint = endpoint
        self._told_to_stop = told_to_stop
        self._progress = progress

    async def run(self, plan: Plan, title: str = "") -> Run:
        load = Load(self._endpoint, self._job.messages, plan, self._told_to_stop)
        async with self._progress.of(load, title):
            return await load.run()

    async def find_limit(self) -> Limit:
        assert self._job.bounds is not None
        # A step that could not end in time is not begun.
        end = time.monotonic() + self._job.search_seconds - (self._job.plan.seconds or 0.0)
        return await find_limit(
            Search(self._job.first_rate), self._job.bounds, self._step, lambda: time.monotonic() > end
        )

    async def _step(self, rate: float) -> Run:
        return await self.run(replace(self._job.plan, rate=rate), f"{rate:,g} a second: ")


# Telling.


def _tell_run(run: Run, job: Job, options: Options) -> int:
    _write(options.report, lambda: run_page(run, job.url, job.settings))
    if options.as_json:
        print_json({"settings": job.settings, **run_as_json(run)})
    else:
        _print(run_lines(run, job.url), options.report)
    return exit_code(run)


def _tell_limit(limit: Limit, job: Job, options: Options) -> int:
    _write(options.report, lambda: limit_page(limit, job.url, job.settings))
    if options.as_json:
        print_json({"settings": job.settings, **limit_as_json(limit)})
    else:
        _print(limit_lines(limit, job.url), options.report)
    return 0 if limit.safe else 1


def _print(lines: list[str], report: Path | None) -> None:
    for line in lines:
        click.echo(printable(line))
    if report is not None:
        click.echo(f"report: {printable(str(report))}")


def _write(report: Path | None, page: Callable[[], str]) -> None:
    if report is None:
        return
    try:
        report.write_text(page(), encoding="utf-8")
    except OSError as error:
        raise StorageUnavailable(f"--report: cannot write {str(report)!r}: {error.strerror}") from error
