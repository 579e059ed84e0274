"""`holdfast publish` and `holdfast pull`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click

from holdfast.cli.operate.client import CALL, Connection, Endpoint, connected, endpoint_options
from holdfast.cli.operate.shown import json_line, message_json, message_line
from holdfast.cli.operate.values import contents, pairs
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, printable
from holdfast.errors import BadInput, HoldfastError

# Of one publish request. Cloud Pub/Sub takes 1,000 messages and 10 MB; the rest of the 10 MB is for field headers.
BATCH_MESSAGES = 1000
BATCH_BYTES = 9_000_000

# An empty subscription is reported after this long; once there was something, the rest comes quickly or not at all.
FIRST_WAIT_SECONDS = 5.0
NEXT_WAIT_SECONDS = 1.0


# Publish.


@click.command()
@click.argument("topic")
@click.argument("data", required=False)
@click.option("--file", type=click.File("rb"), help="File with the data; - is standard input.")
@click.option("--lines", is_flag=True, help="Each line of the file is a message; empty lines are skipped.")
@click.option("--attribute", "attribute_pairs", metavar="KEY=VALUE", multiple=True, help="May be repeated.")
@click.option("--ordering-key", metavar="KEY", default="", help="Messages with the same key stay in order.")
@json_option
@endpoint_options
def publish(
    endpoint: Endpoint,
    topic: str,
    data: str | None,
    file: IO[bytes] | None,
    lines: bool,
    attribute_pairs: Sequence[str],
    ordering_key: str,
    as_json: bool,
) -> None:
    """Publish DATA, or the content of a file, to TOPIC."""
    if data is not None and file is not None:
        raise click.UsageError("Give DATA or --file, not both.")
    if lines and file is None:
        raise click.UsageError("--lines needs --file.")
    path = endpoint.path("topics", topic)
    attributes = pairs("--attribute", attribute_pairs)
    payloads = _lines(file) if lines and file else iter([_one_payload(data, file, bool(attributes))])
    messages = ({"data": one, "attributes": attributes, "ordering_key": ordering_key} for one in payloads)
    overhead = sum(len(key) + len(value) for key, value in attributes.items()) * 4 + len(ordering_key) * 4 + 64
    with connected(endpoint) as connection:
        ids = _publish_all(connection, path, _batches(messages, overhead))
    if as_json:
        print_json({"messageIds": ids})
    elif len(ids) == 1:
        click.echo(printable(f"published message {ids[0]} to {path}"))
    else:
        click.echo(printable(f"published {len(ids)} messages to {path}" + (f": {ids[0]} … {ids[-1]}" if ids else "")))


def _one_payload(data: str | None, file: IO[bytes] | None, has_attributes: bool) -> bytes:
    payload = contents("--file", file) if file is not None else os.fsencode(data or "")
    if not payload and not has_attributes:
        raise click.UsageError("There is nothing to publish: give DATA, --file or --attribute.")
    return payload


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    try:
        for line in file:
            line = line.rstrip(b"\r\n")
            if line:
                yield line
    except OSError as error:
        raise BadInput("--file", f"{file.name}: {error.strerror}") from error


def _batches(messages: Iterator[dict[str, Any]], overhead: int) -> Iterator[list[dict[str, Any]]]:
    """`overhead` is what each message takes beside its data."""
    batch: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        own = len(message["data"]) + overhead
        if batch and (len(batch) == BATCH_MESSAGES or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch


def _publish_all(connection: Connection, path: str, batches: Iterator[list[dict[str, Any]]]) -> list[str]:
    """One batch after the other, so that order is kept. An error says how many are out already."""
    from google.api_core.exceptions import GoogleAPICallError  # noqa: PLC0415

    ids: list[str] = []
    for batch in batches:
        try:
            response = connection.publisher.publish(request={"topic": path, "messages": batch}, **CALL)
        except GoogleAPICallError as error:
            if not ids:
                raise
            raise HoldfastError(f"{error.message} (the first {len(ids)} messages are published)") from error
        ids += response.message_ids
    return ids


# Pull.


@click.command()
@click.argument("subscription")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="At most so many messages.")
@click.option(
    "--ack/--no-ack", default=False, show_default=True, help="Ack them, or let them come back after the ack deadline."
)
@json_option
@endpoint_options
def pull(endpoint: Endpoint, subscription: str, limit: int, ack: bool, as_json: bool) -> None:
    """Pull messages of SUBSCRIPTION and print them."""
    path = endpoint.path("subscriptions", subscription)
    with connected(endpoint) as connection:
        received = _pull_up_to(connection, path, limit)
        # Printed before they are acked: a message must not vanish unseen.
        _print_received(received, as_json)
        if ack and received:
            ack_ids = [one.ack_id for one in received]
            connection.subscriber.acknowledge(subscription=path, ack_ids=ack_ids, **CALL)
    if not as_json:
        _say_what_happens(len(received), ack)


def _pull_up_to(connection: Connection, path: str, limit: int) -> list[Any]:
    """A service may give fewer than it has, so it is asked until it has none."""
    received: list[Any] = []
    while len(received) < limit:
        wait = NEXT_WAIT_SECONDS if received else FIRST_WAIT_SECONDS
        more = _pull_once(connection, path, limit - len(received), wait)
        if not more:
            break
        received += more
    return received


def _pull_once(connection: Connection, path: str, limit: int, wait: float) -> list[Any]:
    from google.api_core.exceptions import DeadlineExceeded  # noqa: PLC0415

    try:
        response = connection.subscriber.pull(subscription=path, max_messages=limit, retry=None, timeout=wait)
    except DeadlineExceeded:
        return []
    return list(response.received_messages)


def _print_received(received: Sequence[Any], as_json: bool) -> None:
    if as_json:
        print_json({"receivedMessages": [message_json(one) | {"ackId": one.ack_id} for one in received]})
    else:
        for one in received:
            click.echo(message_line(one))


def _say_what_happens(count: int, ack: bool) -> None:
    """To standard error: what is printed to standard output is messages only."""
    if not count:
        click.echo("no messages", err=True)
    elif not ack:
        click.echo(f"{count} not acked: they come back after the ack deadline; --ack settles them", err=True)


def print_message(received: Any, as_json: bool) -> None:
    click.echo(json_line(message_json(received)) if as_json else message_line(received))
