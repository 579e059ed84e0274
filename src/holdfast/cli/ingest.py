"""`holdfast ingest`: events into a running Holdfast, validated before they are published."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import quote

import aiohttp
import click

from holdfast.cli.desk.asking import Sender, plain_acting_options
from holdfast.cli.http import LONG_TIMEOUT_SECONDS, NDJSON, errors_of
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table, printable
from holdfast.errors import BadInput, HoldfastError

# Of one request, which takes 1,000 events and 16 MB.
BATCH_EVENTS = 1000
BATCH_BYTES = 9_000_000

_LINE_NAMES = (".ndjson", ".jsonl")

_COUNTS = ("published", "postponed", "refused", "notTaken")


@click.command()
@click.argument("source")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.option("--lines", is_flag=True, help="Each line of the file is an event, as in FILE.ndjson and FILE.jsonl.")
@click.option("--attribute", "attributes", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--ordering-key", metavar="KEY", default="", help="Events with the same key stay in order.")
@click.option("--key", metavar="KEY", default="", help="Idempotency key.  [default: the eventId of each payload]")
@json_option
@plain_acting_options
def ingest(
    desk: Sender,
    source: str,
    file: IO[bytes],
    lines: bool,
    attributes: Sequence[str],
    ordering_key: str,
    key: str,
    as_json: bool,
) -> None:
    """Validate the events of FILE and publish them to SOURCE, a topic. A FILE of - is standard input.

    FILE has one JSON event, an array of them, or with --lines a line each. What is not published is a failed message
    at the desk. An event with an idempotency key, or an eventId, is published once, however often it is sent.
    """
    pairs = [("attribute", _attribute(pair)) for pair in attributes]
    pairs += [("orderingKey", ordering_key)] if ordering_key else []
    by_line = lines or file.name.endswith(_LINE_NAMES)
    results: list[dict[str, Any]] = []
    for number, body in enumerate(_batches(file) if by_line else [_whole(file)]):
        headers = {**desk.headers, "Content-Type": NDJSON if by_line else "application/json"}
        if key:
            headers["Idempotency-Key"] = f"{key}/{number}" if by_line and number else key
        try:
            results += asyncio.run(_post(desk.url, f"/api/v1/ingest/{source}", pairs, body, headers))
        except HoldfastError as error:
            if not results:
                raise
            _print_results(results, as_json)
            told = f"of the events after the first {len(results)} nothing is known: {error}"
            raise HoldfastError(told) from error
    _show(results, as_json)


def _attribute(pair: str) -> str:
    """As the API has it, NAME:VALUE."""
    name, is_pair, value = pair.partition("=")
    if not name or not is_pair or ":" in name:
        raise BadInput("--attribute", f"must look like NAME=VALUE, without a colon in the name, not {pair[:64]!r}")
    return f"{name}:{value}"


def _whole(file: IO[bytes]) -> bytes:
    try:
        return file.read()
    except OSError as error:
        raise BadInput("FILE", f"{file.name}: {error.strerror}") from error


def _batches(file: IO[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    try:
        for line in file:
            if not line.strip():
                continue
            if batch and (len(batch) == BATCH_EVENTS or size + len(line) > BATCH_BYTES):
                yield b"\n".join(batch)
                batch, size = [], 0
            batch.append(line.rstrip(b"\r\n"))
            size += len(line)
    except OSError as error:
        raise BadInput("FILE", f"{file.name}: {error.strerror}") from error
    if batch:
        yield b"\n".join(batch)


async def _post(
    url: str, path: str, pairs: Sequence[tuple[str, str]], body: bytes, headers: dict[str, str]
) -> list[dict[str, Any]]:
    """What became of each event. Raises for a request that was refused as a whole."""
    timeout = aiohttp.ClientTimeout(total=LONG_TIMEOUT_SECONDS)
    with errors_of(url):
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url.rstrip("/") + quote(path), params=pairs, data=body, headers=headers) as response,
        ):
            told = await response.json(content_type=None)
    if isinstance(told, dict) and "results" in told:
        return list(told["results"])
    if isinstance(told, dict) and "messageId" in told:
        return [told]
    try:
        message = str(told["error"]["message"])
    except (LookupError, TypeError):
        message = f"it answered {response.status}, and no Holdfast does so"
    raise HoldfastError(message)


def _show(results: Sequence[dict[str, Any]], as_json: bool) -> None:
    counts = _print_results(results, as_json)
    bad = counts["refused"] + counts["notTaken"]
    if bad:
        raise HoldfastError(f"{bad} of {len(results)} events were not published")


def _print_results(results: Sequence[dict[str, Any]], as_json: bool) -> dict[str, int]:
    counts = dict.fromkeys(_COUNTS, 0)
    for result in results:
        counts[_kind(result)] += 1
    if as_json:
        print_json({**counts, "results": results})
    else:
        _print(results, counts)
    return counts


def _kind(result: dict[str, Any]) -> str:
    if "error" not in result:
        return "published" if result["failure"] is None else "postponed"
    return "notTaken" if result["failure"] is None else "refused"


def _print(results: Sequence[dict[str, Any]], counts: dict[str, int]) -> None:
    if len(results) == 1 and counts["published"]:
        click.echo(printable(f"published message {results[0]['messageId']} to {results[0]['topic']}"))
    else:
        words = {"notTaken": "neither published nor recorded: send them again"}
        shown = [f"{count} {words.get(kind, kind)}" for kind, count in counts.items() if count]
        click.echo(", ".join(shown) or "no events")
    rows = [_cells(number, result) for number, result in enumerate(results, 1) if _kind(result) != "published"]
    if rows:
        print_table(("event", "failure", "reason", "error"), rows, whole=True)


def _cells(number: int, result: dict[str, Any]) -> list[object]:
    complaint = result.get("complaint", {})
    why = result["error"]["message"] if "error" in result else complaint.get("expected", "")
    return [number, result["failure"] or "", result.get("reason", ""), why]
