"""`holdfast held`: ordering keys that wait at a dead-lettered message."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from holdfast.cli.http import Pairs, request
from holdfast.cli.operate.client import Endpoint, connected, endpoint_options
from holdfast.cli.options import Commands, json_option
from holdfast.cli.output import print_json, print_table, printable
from holdfast.errors import HoldfastError
from holdfast.model.names import short_id

# Ours: Pub/Sub has nothing like it.
PATH = "/api/v1/held"

_TITLES = ("subscription", "message", "ordering key", "published", "attempts", "waiting")


@click.group(cls=Commands)
def held() -> None:
    """See which ordering keys wait at a failed message, and let them go on."""


@held.command("list")
@click.argument("subscription", required=False)
@json_option
@endpoint_options
def list_held(endpoint: Endpoint, subscription: str | None, as_json: bool) -> None:
    """List the messages that ordering keys wait at: those of the project, or of SUBSCRIPTION alone."""
    path = endpoint.path("subscriptions", subscription) if subscription is not None else ""
    found = _all_pages(endpoint, path)
    # A full path may be in another project.
    rows = found if path else [row for row in found if row["subscription"].startswith(f"{endpoint.project_path}/")]
    if as_json:
        print_json({"held": rows})
    elif rows:
        print_table(_TITLES, [_cells(row) for row in rows])
    else:
        where = path or f"project {endpoint.project}"
        click.echo(printable(f"no ordering key of {where} waits at a failed message at {endpoint}"))


@held.command()
@click.argument("subscription")
@click.argument("message_id", metavar="MESSAGE_ID")
@json_option
@endpoint_options
def release(endpoint: Endpoint, subscription: str, message_id: str, as_json: bool) -> None:
    """Let the ordering key go on that waits in SUBSCRIPTION at MESSAGE_ID, without that message.

    The desk does so by itself where the message will not come back. What is replayed later comes behind the others.
    """
    path = endpoint.path("subscriptions", subscription)
    told = _ask(endpoint, "POST", f"{PATH}/release", body={"subscription": path, "messageId": message_id})
    if as_json:
        print_json(told)
    elif told["released"]:
        click.echo(printable(f"released: the key goes on without {message_id}"))
    else:
        raise HoldfastError(f"no ordering key of {path} waits at {message_id}")


def _all_pages(endpoint: Endpoint, subscription: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    token = ""
    while True:
        wanted = {"subscription": subscription, "pageSize": "1000", "pageToken": token}
        page = _ask(endpoint, "GET", PATH, [(name, value) for name, value in wanted.items() if value])
        rows += page["held"]
        token = page["nextPageToken"]
        if not token:
            return rows


def _ask(endpoint: Endpoint, method: str, path: str, pairs: Pairs = (), body: dict[str, str] | None = None) -> Any:
    if not endpoint.address:
        raise HoldfastError("Cloud Pub/Sub holds no ordering keys; ask a Holdfast broker, with --broker HOST:PORT")
    # The same way in as the other commands', so that a broker that is not there is told in the same words.
    with connected(endpoint):
        return asyncio.run(request(method, f"http://{endpoint.address}", path, pairs, body=body))


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        short_id(row["subscription"]),
        row["messageId"],
        row["orderingKey"],
        row["publishTime"][:19].replace("T", " "),
        row["deliveryAttempts"],
        row["waiting"],
    ]
