"""`holdfast tail`: messages as they come, over a streaming pull."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.operate.client import CALL, Connection, Endpoint, connected, endpoint_options
from holdfast.cli.operate.messages import print_message
from holdfast.cli.options import json_option
from holdfast.errors import NotFound
from holdfast.model.names import short_id

# What is shown but not acked is borrowed: other consumers get it back when the tail ends, or after this long.
BORROW_SECONDS = 600
MOST_BORROWED = 1000

# The temporary subscription of a tail that was killed goes away by itself; a day is Cloud Pub/Sub's shortest.
TEMPORARY_FOR = timedelta(days=1)
TEMPORARY_RETENTION = timedelta(minutes=10)

RETURN_SECONDS = 30.0
PAUSE_SECONDS = 1.0


@click.command()
@click.argument("source", metavar="SUBSCRIPTION_OR_TOPIC")
@click.option("--ack/--no-ack", default=False, help="Of a subscription: take the messages, or only borrow them.")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many messages.")
@json_option
@endpoint_options
def tail(endpoint: Endpoint, source: str, ack: bool, limit: int | None, as_json: bool) -> None:
    """Print messages as they come, until Ctrl-C.

    A topic is read through a temporary subscription, which nobody else notices. Messages of a subscription are only
    borrowed, and given back at the end, unless --ack takes them. With --json each line is one object.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the temporary subscription is deleted then too
    try:
        with connected(endpoint) as connection, _subscription_of(connection, source) as (subscription, temporary):
            _say(f"reading {subscription}; Ctrl-C ends it")
            _Tail(connection, subscription, ack or temporary, limit, as_json).run()
    except KeyboardInterrupt:
        pass  # how a tail ends
    except BrokenPipeError:
        # The reader of `holdfast tail … | head` has enough; Python must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# What to read.


@contextmanager
def _subscription_of(connection: Connection, source: str) -> Iterator[tuple[str, bool]]:
    """The subscription to read, and whether it is a temporary one of ours."""
    if _is_subscription(connection, source):
        yield connection.endpoint.path("subscriptions", source), False
        return
    topic = connection.endpoint.path("topics", source)
    with _temporary_subscription(connection, topic) as subscription:
        yield subscription, True


def _is_subscription(connection: Connection, source: str) -> bool:
    if source.startswith("projects/"):
        return "/topics/" not in source
    if _exists(connection.subscriber.get_subscription, connection.endpoint.path("subscriptions", source)):
        return True
    if _exists(connection.publisher.get_topic, connection.endpoint.path("topics", source)):
        return False
    raise NotFound(f"{connection.endpoint.project_path} has neither a subscription nor a topic {source}")


def _exists(get: Any, path: str) -> bool:
    from google.api_core.exceptions import NotFound as NoSuchThing  # noqa: PLC0415

    field = "topic" if "/topics/" in path else "subscription"
    try:
        get(**{field: path}, **CALL)
    except NoSuchThing:
        return False
    return True


@contextmanager
def _temporary_subscription(connection: Connection, topic: str) -> Iterator[str]:
    name = f"tail-{short_id(topic)[:200]}-{secrets.token_hex(4)}"
    path = connection.endpoint.path("subscriptions", name)
    request = {
        "name": path,
        "topic": topic,
        "expiration_policy": {"ttl": TEMPORARY_FOR},
        "message_retention_duration": TEMPORARY_RETENTION,
    }
    try:
        connection.subscriber.create_subscription(request=request, **CALL)
        yield path
    finally:
        # Also after a Ctrl-C inside the call that creates it.
        _delete_quietly(connection, path)


def _delete_quietly(connection: Connection, path: str) -> None:
    from google.api_core.exceptions import GoogleAPICallError, NotFound  # noqa: PLC0415

    try:
        connection.subscriber.delete_subscription(subscription=path, **CALL)
    except NotFound:
        pass
    except GoogleAPICallError:
        _say(f"could not delete {path}; it expires by itself in {TEMPORARY_FOR.days} day")


# Reading.


class _Tail:
    def __init__(self, connection: Connection, subscription: str, ack: bool, limit: int | None, as_json: bool) -> None:
        self._connection = connection
        self._subscription = subscription
        self._ack = ack
        self._left = limit
        self._as_json = as_json
        self._borrowed: list[str] = []

    def run(self) -> None:
        """A stream ends now and then: Cloud Pub/Sub closes each after a while, and brokers restart."""
        try:
            while not self._read_one_stream():
                time.sleep(PAUSE_SECONDS)
                self._connection.wait_for_return(RETURN_SECONDS)
        finally:
            self._give_back(self._borrowed)

    def _read_one_stream(self) -> bool:
        """True when as many messages as wanted were shown."""
        import grpc  # noqa: PLC0415
        from google.api_core import exceptions  # noqa: PLC0415

        ended = threading.Event()
        # The raw method: the client's own waits for a first message before it gives anything that could be cancelled.
        stream: Any = self._connection.subscriber.transport.streaming_pull
        routing = [("x-goog-request-params", f"subscription={self._subscription}")]
        call = stream(self._requests(ended), metadata=routing)
        try:
            return any(self._show(list(response.received_messages)) for response in call)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise exceptions.from_grpc_error(error) from error  # type: ignore[no-untyped-call]
            return False
        finally:
            ended.set()
            call.cancel()

    def _requests(self, ended: threading.Event) -> Iterator[Any]:
        from google.pubsub_v1.types import StreamingPullRequest  # noqa: PLC0415

        yield StreamingPullRequest(
            subscription=self._subscription,
            stream_ack_deadline_seconds=BORROW_SECONDS,
            max_outstanding_messages=min(self._left or MOST_BORROWED, MOST_BORROWED),
        )
        ended.wait()  # the end of the requests would be the end of the stream

    def _show(self, batch: list[Any]) -> bool:
        wanted = batch if self._left is None else batch[: self._left]
        for received in wanted:
            print_message(received, self._as_json)
        self._settle([received.ack_id for received in wanted])
        self._give_back([received.ack_id for received in batch[len(wanted) :]])
        if self._left is not None:
            self._left -= len(wanted)
        return self._left == 0

    def _settle(self, ack_ids: list[str]) -> None:
        if not ack_ids:
            return
        if self._ack:
            self._connection.subscriber.acknowledge(subscription=self._subscription, ack_ids=ack_ids, **CALL)
            return
        self._borrowed += ack_ids
        if len(self._borrowed) >= MOST_BORROWED > len(self._borrowed) - len(ack_ids):
            _say(f"{MOST_BORROWED} messages are borrowed, and no more will come; --ack takes them")

    def _give_back(self, ack_ids: list[str]) -> None:
        for start in range(0, len(ack_ids), MOST_BORROWED):
            self._connection.subscriber.modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=ack_ids[start : start + MOST_BORROWED],
                ack_deadline_seconds=0,
                **CALL,
            )


def _say(what: str) -> None:
    """To standard error: standard output has messages only."""
    click.echo(what, err=True)
