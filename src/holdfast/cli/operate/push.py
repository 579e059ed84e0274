"""`holdfast push`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import click

from holdfast.cli.operate.client import CALL_SECONDS, Endpoint, connected, endpoint_options
from holdfast.cli.options import Commands, json_option
from holdfast.cli.output import LONGEST_CELL, print_json, print_table, printable
from holdfast.clock import NANOSECONDS
from holdfast.errors import HoldfastError, StorageUnavailable
from holdfast.model.names import short_id
from holdfast.model.timestamps import parse_rfc3339

# Ours: Pub/Sub has nothing like it.
PATH = "/api/v1/push"

_TITLES = ("subscription", "state", "window", "in flight", "due", "waiting", "next due", "last status", "last error")

# An error is not cut shorter than this, however narrow the terminal is.
SHORTEST_ERROR = 20

_UNITS = ((48 * 3600, 86400, "d"), (2 * 3600, 3600, "h"), (120, 60, "min"), (0, 1, "s"))


@click.group(cls=Commands)
def push() -> None:
    """See how push delivery does."""


@push.command("status")
@click.argument("subscription", required=False)
@json_option
@endpoint_options
def push_status(endpoint: Endpoint, subscription: str | None, as_json: bool) -> None:
    """Show the push subscriptions of the project, or SUBSCRIPTION alone: what waits, and what the endpoint said last.

    Counted since the broker started.
    """
    if not endpoint.address:
        raise HoldfastError("Cloud Pub/Sub does not tell how push does; ask a Holdfast broker, with --broker HOST:PORT")
    path = endpoint.path("subscriptions", subscription) if subscription is not None else ""
    # The same way in as the other commands', so that a broker that is not there is told in the same words.
    with connected(endpoint):
        found, now = asyncio.run(_all_pages(endpoint.address, path))
    # A full path may be in another project.
    rows = found if path else [row for row in found if row["subscription"].startswith(f"{endpoint.project_path}/")]
    if as_json:
        print_json({"subscriptions": rows})
    elif rows:
        print_table(_TITLES, _fitted([_cells(row, now) for row in rows]))
    else:
        click.echo(printable(_nothing(endpoint, path)))


def _nothing(endpoint: Endpoint, path: str) -> str:
    if path:
        return f"{path} is no push subscription at {endpoint}"
    return f"no push subscriptions in project {endpoint.project} at {endpoint}"


# Asking.


async def _all_pages(address: str, path: str) -> tuple[list[dict[str, Any]], str]:
    """Also the broker's time, by which the times in the rows are to be read."""
    rows: list[dict[str, Any]] = []
    token = ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS)) as session:
        while True:
            wanted = {"subscription": path, "pageSize": "1000", "pageToken": token}
            page, token, now = await _page(session, address, {name: value for name, value in wanted.items() if value})
            rows += page
            if not token:
                return rows, now


async def _page(
    session: aiohttp.ClientSession, address: str, query: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str, str]:
    """Rows, the token of the next page, and the broker's time."""
    try:
        async with session.get(f"http://{address}{PATH}", params=query) as response:
            if response.status == 404:
                raise HoldfastError(f"{address} does not tell how push does: it is no Holdfast broker, or an older one")
            body = await response.json(content_type=None)
            if response.status != 200:
                raise HoldfastError(body["error"]["message"])
            return body["subscriptions"], body["nextPageToken"], body["time"]
    except TimeoutError as error:
        raise StorageUnavailable(f"{address} did not answer within {CALL_SECONDS:g} seconds") from error
    except (aiohttp.ClientError, ValueError, LookupError, TypeError) as error:
        raise StorageUnavailable(f"{address} gave an answer that cannot be read: {error!r}") from error


# Showing.


def _cells(row: Mapping[str, Any], now: str) -> list[object]:
    return [
        short_id(row["subscription"]),
        _state(row, now),
        row["window"],
        row["inFlight"],
        row["due"],
        row["waiting"],
        _from_now(row.get("nextDueTime", ""), now),
        row["lastStatus"],
        row.get("pausedBecause") or row["lastError"],
    ]


def _state(row: Mapping[str, Any], now: str) -> str:
    until = _from_now(row.get("pausedUntil", ""), now)
    return f"{row['state']}, tries {until}" if until else str(row["state"])


def _from_now(time: str, now: str) -> str:
    if not time:
        return ""
    seconds = (parse_rfc3339(time) - parse_rfc3339(now)) / NANOSECONDS
    if seconds <= 0:
        return "now"
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    return f"in {max(round(seconds / size), 1)} {unit}"


def _fitted(rows: Sequence[list[object]]) -> Sequence[list[object]]:
    """With the errors cut so that a row is a line of the terminal. A file or a pipe has no width."""
    if not sys.stdout.isatty():
        return rows
    columns = zip(_TITLES[:-1], *(row[:-1] for row in rows), strict=True)
    used = sum(min(max(len(str(value)) for value in column), LONGEST_CELL) + 2 for column in columns)
    left = max(shutil.get_terminal_size().columns - used, SHORTEST_ERROR)
    return [[*row[:-1], _cut(str(row[-1]), left)] for row in rows]


def _cut(text: str, most: int) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= most else text[: most - 1] + "…"
