"""`holdfast demo`: sends a small realistic stream to a running `holdfast up` and shows how each message ends."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click

from holdfast.cli.http import TIMEOUT_SECONDS, get_json_with
from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import myself, print_json, print_table
from holdfast.clock import NANOSECONDS
from holdfast.errors import NotFound, StorageUnavailable
from holdfast.model.message import Message
from holdfast.model.names import topic_path
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import Settings

# How long one message may take from publish to its outcome; in strict mode a poison spends its attempts first.
PATIENCE_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.05

HOUR_NS = 3600 * NANOSECONDS


@dataclass(frozen=True, slots=True)
class Sample:
    what: str
    topic: str
    data: bytes


def samples(system_events: str, now_ns: int) -> list[Sample]:
    """Event ids carry the time, so that a second demo is not one big duplicate."""
    run, now, earlier = str(now_ns // 1_000_000), format_rfc3339(now_ns), format_rfc3339(now_ns - HOUR_NS)

    def sample(what: str, topic: str, **payload: object) -> Sample:
        return Sample(what, topic, json.dumps(payload).encode())

    heartbeat = {"version": "1.4.2", "region": "europe-west1"}
    tick = {"eventId": f"tick-{run}", "symbol": "ACME", "price": 101.25, "size": 300, "producedAt": now}
    bar = {"symbol": "ACME", "open": 101.0, "high": 101.5, "low": 100.75, "close": 101.25, "volume": 12_000}
    return [
        sample("checkout is healthy", system_events, service="checkout", status="ok", timestamp=now, **heartbeat),
        sample(
            "payments is slow",
            system_events,
            service="payments",
            status="degraded",
            timestamp=now,
            **heartbeat,
        ),
        sample("a tick", "market-ticks", **tick),
        sample("a one-minute bar", "market-bars-1m", eventId=f"bar-{run}", start=now, producedAt=now, **bar),
        sample(
            "a trade signal",
            "trade-signals",
            eventId=f"signal-{run}",
            symbol="ACME",
            strategy="mean-reversion",
            action="BUY",
            producedAt=now,
        ),
        sample("the same tick, published again", "market-ticks", **tick),
        sample("checkout, an hour late", system_events, service="checkout", status="down", timestamp=earlier),
        Sample("not JSON", system_events, b"<event>checkout</event>"),
        sample("JSON without a service", system_events, status="ok", timestamp=now),
    ]


@click.command()
@click.option("--broker", metavar="HOST:PORT", help="Broker.  [default: PUBSUB_EMULATOR_HOST, or 127.0.0.1:8085]")
@click.option("--url", help="HTTP API.  [default: http://127.0.0.1:8080]")
@json_option
@config_option
def demo(broker: str | None, url: str | None, as_json: bool, config: Path | None) -> None:
    """Send a small stream to a running `holdfast up` and see every outcome."""
    settings = settings_from(config, emulator_host=broker)
    url = url or f"http://{settings.http.host}:{settings.http.port}"
    rows = asyncio.run(_play(settings, url))
    if as_json:
        print_json({"messages": rows})
        return
    print_table(
        ["sent", "to", "outcome", "where"],
        [(row["sent"], row["topic"], row["outcome"], row["where"]) for row in rows],
    )
    click.echo("\n" + "\n".join(_next_steps(rows)))


async def _play(settings: Settings, url: str) -> list[dict[str, Any]]:
    # Imported here: Google's client takes half a second, which other commands should not pay.
    from holdfast.transports.google import GoogleTransport  # noqa: PLC0415

    host = settings.general.emulator_host or f"{settings.broker.host}:{settings.broker.port}"
    transport = GoogleTransport.connect(host)
    rows: list[dict[str, Any]] = []
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
            await get_json_with(session, url, "/healthz")  # says at once when nothing is there
            for sample in samples(settings.consumer.system_events_topic, time.time_ns()):
                message_id = await _publish(transport, settings, host, sample)
                outcome = await _outcome_of(session, url, message_id)
                rows.append(await _row(session, url, sample, message_id, outcome))
    finally:
        await transport.close()
    return rows


async def _publish(transport: Any, settings: Settings, host: str, sample: Sample) -> str:
    topic = topic_path(settings.general.project, sample.topic)
    try:
        return str(await transport.publish(topic, Message(sample.data)))
    except NotFound as error:
        raise NotFound(f"{error}: is this broker part of a `holdfast up`?") from error
    except StorageUnavailable as error:
        raise StorageUnavailable(f"no broker answers at {host}. Is `holdfast up` running?") from error


async def _outcome_of(session: aiohttp.ClientSession, url: str, message_id: str) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        recent = (await get_json_with(session, url, "/api/v1/outcomes", messageId=message_id))["recent"]
        if recent:
            found: dict[str, Any] = recent[0]
            return found
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    raise StorageUnavailable(
        f"message {message_id} was published but reached no consumer; see the log of `holdfast up`"
    )


async def _row(
    session: aiohttp.ClientSession, url: str, sample: Sample, message_id: str, outcome: dict[str, Any]
) -> dict[str, Any]:
    where = outcome["document"]
    if outcome["outcome"] == "poison":
        failure_id = await _failure_of(session, url, message_id)
        where = f"failure {failure_id}" if failure_id else "will be dead-lettered after its attempts"
    return {
        "sent": sample.what,
        "topic": sample.topic,
        "messageId": message_id,
        "outcome": outcome["outcome"],
        "where": where,
    }


async def _failure_of(session: aiohttp.ClientSession, url: str, message_id: str) -> int | None:
    """Within seconds with our broker; in strict mode only after the attempts are spent, which nobody waits for."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for failure in await _failures(session, url):
            if failure["messageId"] == message_id:
                return int(failure["id"])
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return None


async def _failures(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = (await get_json_with(session, url, "/api/v1/failures"))["failures"]
    except NotFound:  # a consumer alone has no desk
        return []
    return found


def _next_steps(rows: list[dict[str, Any]]) -> list[str]:
    document = next(row["where"] for row in rows if row["outcome"] == "applied")
    return [
        "applied: the document is written. duplicate: its effect was already there. stale_ignored: a newer event came",
        "first. poison: it can never succeed, so it is on the dead-letter topic and at the desk.",
        "",
        "Look for yourself:",
        f"  {myself()} docs get {document}",
        f"  {myself()} failures list",
    ]
