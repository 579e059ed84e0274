"""The options of `holdfast load`: what may be given, what goes together, and what becomes of it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

import holdfast
from holdfast.cli.load.limit import START_RATE, Bounds
from holdfast.cli.load.messages import Messages
from holdfast.cli.load.payloads import Payload, from_file, made_up
from holdfast.cli.load.run import Plan
from holdfast.cli.options import settings_from
from holdfast.errors import BadInput
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.targets import Target, parse_target
from holdfast.settings import Settings

REQUESTS = 2000
CONCURRENCY = 100
# To find a limit, it must be the endpoint that runs out of something first.
SEARCH_CONCURRENCY = 1000
SERVICES = 1000
MAX_P99_MS = 200.0
MAX_ERRORS_PERCENT = 0.0
STEP_SECONDS = 3.0
SEARCH_SECONDS = 120.0

PATH = "/pubsub/push"
# Not push's own: whoever reads the endpoint's log should see what this is.
USER_AGENT = f"holdfast-load/{holdfast.__version__}"


@dataclass(frozen=True, slots=True)
class Options:
    """As they were typed; None is not given."""

    url: str | None
    requests: int | None
    duration: float | None
    concurrency: int | None
    rate: float | None
    topic: str | None
    subscription: str
    payload: Path | None
    payload_bytes: int | None
    services: int | None
    duplicates: float
    delivery_attempt: bool
    token: str | None
    token_file: Path | None
    timeout: float
    seed: int | None
    find_limit: bool
    max_p99: float | None
    max_errors: float | None
    step_seconds: float | None
    report: Path | None
    as_json: bool
    config: Path | None


@dataclass(frozen=True, slots=True)
class Job:
    """What to do, with every option checked."""

    url: str
    target: Target
    head: bytes
    messages: Messages
    plan: Plan
    """Of the whole run; of each step, but for its rate, when a limit is to be found."""
    bounds: Bounds | None
    """Only when a limit is to be found."""
    first_rate: float
    search_seconds: float
    settings: Mapping[str, object]
    """For reports: without the token."""


def checked(options: Options) -> Job:
    """Raises click.UsageError that names the option."""
    _check_together(options)
    settings = settings_from(options.config)
    url = options.url or f"http://{settings.http.host}:{settings.http.port}{PATH}"
    topic = options.topic or settings.consumer.system_events_topic
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    try:
        target = parse_target("--url", url)
        messages = _messages(options, settings, topic, seed)
    except BadInput as error:
        raise _usage(error.field, error.why) from error
    return Job(
        url=url,
        target=target,
        head=_head(target, _token(options)),
        messages=messages,
        plan=_plan(options),
        bounds=_bounds(options),
        first_rate=options.rate or START_RATE,
        search_seconds=options.duration or SEARCH_SECONDS,
        settings=_shown(options, url, topic, seed),
    )


def _check_together(options: Options) -> None:
    if options.token is not None and options.token_file is not None:
        raise click.UsageError("--token and --token-file exclude each other.")
    for flag, value in (("--payload-bytes", options.payload_bytes), ("--services", options.services)):
        if options.payload is not None and value is not None:
            raise click.UsageError(f"--payload and {flag} exclude each other: the file says it all.")
    if options.find_limit:
        if options.requests is not None:
            raise click.UsageError("--requests and --find-limit exclude each other: --step-seconds ends a step.")
    else:
        bounds = {"--max-p99": options.max_p99, "--max-errors": options.max_errors}
        for flag, number in (bounds | {"--step-seconds": options.step_seconds}).items():
            if number is not None:
                raise click.UsageError(f"{flag} needs --find-limit.")
    if options.report is not None and not options.report.absolute().parent.is_dir():
        raise _usage("--report", f"the directory {str(options.report.parent)!r} does not exist")


def _messages(options: Options, settings: Settings, topic: str, seed: int) -> Messages:
    run = str(time.time_ns() // 1000)
    return Messages(
        _payload(options, settings, topic, seed, run),
        topic=topic,
        subscription=options.subscription,
        run=run,
        redelivered_share=options.duplicates / 100,
        with_attempt=options.delivery_attempt,
        seed=seed,
    )


def _payload(options: Options, settings: Settings, topic: str, seed: int, run: str) -> Payload:
    if options.payload is not None:
        return from_file(options.payload)
    return made_up(
        topic,
        settings.consumer.system_events_topic,
        things=options.services or SERVICES,
        least_bytes=options.payload_bytes or 0,
        run=run,
        seed=seed,
    )


def _token(options: Options) -> tuple[str, str]:
    """With the option that it came from."""
    if options.token_file is None:
        return "--token", options.token or ""
    try:
        return "--token-file", options.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _usage("--token-file", getattr(error, "strerror", None) or "is not text") from error


def _head(target: Target, token: tuple[str, str]) -> bytes:
    flag, text = token
    headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json"}
    if text:
        headers["Authorization"] = f"Bearer {text}"
    try:
        return request_head("POST", target, headers)
    except BadInput as error:
        raise _usage(flag, error.why) from error


def _plan(options: Options) -> Plan:
    ends = options.find_limit or options.duration is not None
    return Plan(
        concurrency=options.concurrency or (SEARCH_CONCURRENCY if options.find_limit else CONCURRENCY),
        timeout_seconds=options.timeout,
        requests=options.requests if ends else options.requests or REQUESTS,
        seconds=(options.step_seconds or STEP_SECONDS) if options.find_limit else options.duration,
        rate=options.rate,
    )


def _bounds(options: Options) -> Bounds | None:
    if not options.find_limit:
        return None
    errors = MAX_ERRORS_PERCENT if options.max_errors is None else options.max_errors
    return Bounds(options.max_p99 or MAX_P99_MS, errors / 100)


def _shown(options: Options, url: str, topic: str, seed: int) -> dict[str, object]:
    return {
        "url": url,
        "topic": topic,
        "subscription": options.subscription,
        "concurrency": _plan(options).concurrency,
        "requests": _plan(options).requests,
        "duration": options.duration,
        "rate": options.rate,
        "payload": None if options.payload is None else str(options.payload),
        "payloadBytes": options.payload_bytes,
        "services": None if options.payload else options.services or SERVICES,
        "duplicatesPercent": options.duplicates,
        "deliveryAttempt": options.delivery_attempt,
        "token": options.token is not None or options.token_file is not None,
        "timeout": options.timeout,
        "seed": seed,
        "findLimit": options.find_limit,
        "stepSeconds": _plan(options).seconds if options.find_limit else None,
    }


def _usage(flag: str, why: str) -> click.BadParameter:
    return click.BadParameter(f"{why}.", param_hint=f"'{flag}'")
