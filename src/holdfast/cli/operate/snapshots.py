"""`holdfast snapshots`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.operate.client import CALL, Endpoint, connected, endpoint_options
from holdfast.cli.operate.shown import labels, short_name, show_created, show_deleted, show_list
from holdfast.cli.operate.values import pairs
from holdfast.cli.options import Commands, json_option
from holdfast.model.names import short_id

_COLUMNS = {
    "snapshot": short_name,
    "topic": lambda snapshot: short_id(snapshot.get("topic", "")),
    "expires": lambda snapshot: snapshot.get("expireTime", "")[:19].replace("T", " "),
    "labels": labels,
}


@click.group(cls=Commands)
def snapshots() -> None:
    """List, create and delete snapshots."""


@snapshots.command("list")
@json_option
@endpoint_options
def list_snapshots(endpoint: Endpoint, as_json: bool) -> None:
    """List the snapshots of the project."""
    with connected(endpoint) as connection:
        found = list(connection.subscriber.list_snapshots(project=endpoint.project_path, **CALL))
    show_list("snapshots", found, _COLUMNS, f"project {endpoint.project} at {endpoint}", as_json)


@snapshots.command("create")
@click.argument("snapshot")
@click.option("--subscription", required=True, help="Keep what is not acked in this subscription.")
@click.option("--label", "label_pairs", metavar="KEY=VALUE", multiple=True, help="A label. May be repeated.")
@json_option
@endpoint_options
def create_snapshot(
    endpoint: Endpoint, snapshot: str, subscription: str, label_pairs: Sequence[str], as_json: bool
) -> None:
    """Create SNAPSHOT, to which `holdfast subscriptions seek` can return."""
    request = {
        "name": endpoint.path("snapshots", snapshot),
        "subscription": endpoint.path("subscriptions", subscription),
        "labels": pairs("--label", label_pairs),
    }
    with connected(endpoint) as connection:
        created = connection.subscriber.create_snapshot(request=request, **CALL)
    show_created(created, as_json)


@snapshots.command("delete")
@click.argument("snapshot")
@json_option
@endpoint_options
def delete_snapshot(endpoint: Endpoint, snapshot: str, as_json: bool) -> None:
    """Delete SNAPSHOT."""
    path = endpoint.path("snapshots", snapshot)
    with connected(endpoint) as connection:
        connection.subscriber.delete_snapshot(snapshot=path, **CALL)
    show_deleted(path, as_json)
