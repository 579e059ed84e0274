"""`holdfast topics`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from holdfast.cli.operate.client import CALL, Endpoint, connected, endpoint_options
from holdfast.cli.operate.shown import (
    labels,
    short_duration,
    short_name,
    show_created,
    show_deleted,
    show_list,
    show_one,
)
from holdfast.cli.operate.values import DURATION, pairs
from holdfast.cli.options import Commands, json_option
from holdfast.model.names import short_id

_COLUMNS = {
    "topic": short_name,
    "retention": lambda topic: short_duration(topic.get("messageRetentionDuration", "")),
    "schema": lambda topic: short_id(topic.get("schemaSettings", {}).get("schema", "")),
    "labels": labels,
}


@click.group(cls=Commands)
def topics() -> None:
    """List, create, show and delete topics."""


@topics.command("list")
@json_option
@endpoint_options
def list_topics(endpoint: Endpoint, as_json: bool) -> None:
    """List the topics of the project."""
    with connected(endpoint) as connection:
        found = list(connection.publisher.list_topics(project=endpoint.project_path, **CALL))
    show_list("topics", found, _COLUMNS, f"project {endpoint.project} at {endpoint}", as_json)


@topics.command("create")
@click.argument("topic")
@click.option("--retention", type=DURATION, help="Keep messages so long, such as 7d, so that seek can go back.")
@click.option("--schema", help="Messages must fit this schema.")
@click.option(
    "--encoding",
    type=click.Choice(["json", "binary"]),
    default="json",
    show_default=True,
    help="How messages of the schema are written.",
)
@click.option("--label", "label_pairs", metavar="KEY=VALUE", multiple=True, help="A label. May be repeated.")
@json_option
@endpoint_options
def create_topic(
    endpoint: Endpoint,
    topic: str,
    retention: timedelta | None,
    schema: str | None,
    encoding: str,
    label_pairs: Sequence[str],
    as_json: bool,
) -> None:
    """Create TOPIC: an id, or a full path."""
    request: dict[str, object] = {"name": endpoint.path("topics", topic), "labels": pairs("--label", label_pairs)}
    if retention is not None:
        request["message_retention_duration"] = retention
    if schema is not None:
        request["schema_settings"] = {"schema": endpoint.path("schemas", schema), "encoding": encoding.upper()}
    with connected(endpoint) as connection:
        created = connection.publisher.create_topic(request=request, **CALL)
    show_created(created, as_json)


@topics.command("show")
@click.argument("topic")
@json_option
@endpoint_options
def show_topic(endpoint: Endpoint, topic: str, as_json: bool) -> None:
    """Show how TOPIC is configured."""
    path = endpoint.path("topics", topic)
    with connected(endpoint) as connection:
        found = connection.publisher.get_topic(topic=path, **CALL)
    show_one(found, as_json)


@topics.command("delete")
@click.argument("topic")
@json_option
@endpoint_options
def delete_topic(endpoint: Endpoint, topic: str, as_json: bool) -> None:
    """Delete TOPIC. Its subscriptions stay, with what they hold."""
    path = endpoint.path("topics", topic)
    with connected(endpoint) as connection:
        connection.publisher.delete_topic(topic=path, **CALL)
    show_deleted(path, as_json)
