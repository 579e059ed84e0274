"""`holdfast subscriptions`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from holdfast.broker.push.attributes import CONCURRENCY, CONFIRM, PER_SECOND
from holdfast.cli.http import get_json
from holdfast.cli.operate.client import CALL, Endpoint, connected, endpoint_options
from holdfast.cli.operate.shown import (
    resource_json,
    short_name,
    show_created,
    show_deleted,
    show_done,
    show_list,
    show_one,
)
from holdfast.cli.operate.values import DURATION, pairs
from holdfast.cli.options import Commands, json_option
from holdfast.cli.output import printable
from holdfast.clock import NANOSECONDS
from holdfast.errors import BadInput, HoldfastError
from holdfast.model.names import short_id
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339


@click.group(cls=Commands)
def subscriptions() -> None:
    """List, create, show, change, delete and seek subscriptions."""


# What the table shows.


def _delivery(subscription: Mapping[str, Any]) -> str:
    endpoint = subscription.get("pushConfig", {}).get("pushEndpoint", "")
    return f"push {endpoint}" if endpoint else "pull"


def _features(subscription: Mapping[str, Any]) -> str:
    found = [
        "ordering" if subscription.get("enableMessageOrdering") else "",
        "exactly-once" if subscription.get("enableExactlyOnceDelivery") else "",
        f"filter {subscription['filter']}" if subscription.get("filter") else "",
        "detached" if subscription.get("detached") else "",
        _push_settings(subscription),
    ]
    return ", ".join(feature for feature in found if feature)


def _push_settings(subscription: Mapping[str, Any]) -> str:
    """What is asked of push besides the endpoint, in a few words each."""
    push = subscription.get("pushConfig", {})
    account = push.get("oidcToken", {}).get("serviceAccountEmail", "")
    given = push.get("attributes", {})
    found = [
        f"token of {account}" if account else "",
        _wrapping(push),
        f"{given[CONCURRENCY]} at once" if CONCURRENCY in given else "",
        f"{given[PER_SECOND]} a second" if PER_SECOND in given else "",
        "must agree first" if given.get(CONFIRM) == "true" else "",
    ]
    return ", ".join(setting for setting in found if setting)


def _wrapping(push: Mapping[str, Any]) -> str:
    if "noWrapper" not in push:
        return ""
    return "unwrapped with metadata" if push["noWrapper"].get("writeMetadata") else "unwrapped"


_COLUMNS = {
    "subscription": short_name,
    "topic": lambda subscription: short_id(subscription.get("topic", "")),
    "delivery": _delivery,
    "deadline": lambda subscription: f"{subscription.get('ackDeadlineSeconds', 10)}s",
    "dead letters to": lambda subscription: short_id(
        subscription.get("deadLetterPolicy", {}).get("deadLetterTopic", "")
    ),
    "features": _features,
}


# Push.

# Which flag means nothing without which other one. None of them means anything without an endpoint.
_NEEDS = {
    "push_auth_token_audience": "push_auth_service_account",
    "push_no_wrapper_write_metadata": "push_no_wrapper",
}


def push_options(command: Callable[..., None]) -> Callable[..., None]:
    """What there is to say about push besides the endpoint. What gcloud has too is named as there."""
    options = [
        click.option("--push-auth-service-account", metavar="EMAIL", help="Send a token in the name of this account."),
        click.option(
            "--push-auth-token-audience",
            metavar="AUDIENCE",
            help="Whom the token is for.  [default: the endpoint's URL]",
        ),
        click.option("--push-no-wrapper", is_flag=True, help="Send the data alone, not inside Pub/Sub's JSON."),
        click.option("--push-no-wrapper-write-metadata", is_flag=True, help="Send the rest of the message as headers."),
        click.option("--push-concurrency", metavar="N", type=click.IntRange(1), help="At most so many at once."),
        click.option(
            "--push-rate",
            metavar="PER_SECOND",
            type=click.FloatRange(0, min_open=True),
            help="At most so many a second.",
        ),
        click.option("--push-confirm", is_flag=True, help="Send nothing until the endpoint has agreed."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _push_config(push_endpoint: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """`flags` are the values of push_options, by name."""
    given = {name: value for name, value in flags.items() if value not in (None, False)}
    _check_needs(given | ({"push_endpoint": push_endpoint} if push_endpoint else {}))
    attributes = {
        CONCURRENCY: str(flags["push_concurrency"]) if "push_concurrency" in given else None,
        PER_SECOND: str(flags["push_rate"]).removesuffix(".0") if "push_rate" in given else None,
        CONFIRM: "true" if "push_confirm" in given else None,
    }
    oidc = _given(
        service_account_email=given.get("push_auth_service_account"), audience=given.get("push_auth_token_audience")
    )
    return _given(
        push_endpoint=push_endpoint,
        oidc_token=oidc or None,
        no_wrapper=_no_wrapper(given),
        attributes=_given(**attributes) or None,
    )


def _no_wrapper(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where it is there at all, messages are not wrapped."""
    return {"write_metadata": "push_no_wrapper_write_metadata" in given} if "push_no_wrapper" in given else None


def _check_needs(given: Mapping[str, Any]) -> None:
    for name in given:
        for needed in ("push_endpoint", _NEEDS.get(name, "push_endpoint")):
            if needed not in given:
                raise click.UsageError(f"{_flag(name)} needs {_flag(needed)}.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# Commands.


@subscriptions.command("list")
@click.option("--topic", help="Only those of this topic.")
@json_option
@endpoint_options
def list_subscriptions(endpoint: Endpoint, topic: str | None, as_json: bool) -> None:
    """List the subscriptions of the project."""
    path = endpoint.path("topics", topic) if topic is not None else None
    with connected(endpoint) as connection:
        found = list(connection.subscriber.list_subscriptions(project=endpoint.project_path, **CALL))
    wanted = [subscription for subscription in found if path in (None, subscription.topic)]
    show_list("subscriptions", wanted, _COLUMNS, f"project {endpoint.project} at {endpoint}", as_json)


@subscriptions.command("create")
@click.argument("subscription")
@click.option("--topic", required=True, help="Topic to subscribe to.")
@click.option("--push-endpoint", metavar="URL", help="Push messages to this URL.  [default: they are pulled]")
@push_options
@click.option("--ack-deadline", metavar="SECONDS", type=click.IntRange(10, 600), help="Time for an ack.  [default: 10]")
@click.option("--dead-letter-topic", metavar="TOPIC", help="Topic that takes what is not acked after its attempts.")
@click.option("--max-delivery-attempts", type=click.IntRange(5, 100), help="Those attempts.  [default: 5]")
@click.option("--min-backoff", type=DURATION, help="Shortest wait before a message is sent again, such as 10s.")
@click.option("--max-backoff", type=DURATION, help="Longest wait before a message is sent again, such as 10m.")
@click.option("--filter", "filter_", help="""Only messages that match, such as 'attributes.kind = "order"'.""")
@click.option("--ordering", is_flag=True, help="Deliver messages with the same ordering key in order.")
@click.option("--exactly-once", is_flag=True, help="Never deliver a message again once its ack was confirmed.")
@click.option("--retention", type=DURATION, help="Keep messages so long.  [default: 7d]")
@click.option("--retain-acked", is_flag=True, help="Keep acked messages too, so that seek can go back.")
@click.option("--label", "label_pairs", metavar="KEY=VALUE", multiple=True, help="A label. May be repeated.")
@json_option
@endpoint_options
def create_subscription(endpoint: Endpoint, subscription: str, as_json: bool, **options: Any) -> None:
    """Create SUBSCRIPTION: an id, or a full path."""
    request = {"name": endpoint.path("subscriptions", subscription)} | _configuration(endpoint, **options)
    with connected(endpoint) as connection:
        created = connection.subscriber.create_subscription(request=request, **CALL)
    show_created(created, as_json)


def _configuration(
    endpoint: Endpoint,
    *,
    topic: str,
    push_endpoint: str | None,
    ack_deadline: int | None,
    dead_letter_topic: str | None,
    max_delivery_attempts: int | None,
    min_backoff: timedelta | None,
    max_backoff: timedelta | None,
    filter_: str | None,
    ordering: bool,
    exactly_once: bool,
    retention: timedelta | None,
    retain_acked: bool,
    label_pairs: Sequence[str],
    **push: Any,
) -> dict[str, Any]:
    """Only what was asked for: the rest is the service's to decide. `push` are the values of push_options."""
    if max_delivery_attempts is not None and dead_letter_topic is None:
        raise click.UsageError("--max-delivery-attempts needs --dead-letter-topic.")
    wanted = {
        "topic": endpoint.path("topics", topic),
        "push_config": _push_config(push_endpoint, push),
        "ack_deadline_seconds": ack_deadline,
        "dead_letter_policy": _given(
            dead_letter_topic=endpoint.path("topics", dead_letter_topic) if dead_letter_topic else None,
            max_delivery_attempts=max_delivery_attempts,
        ),
        "retry_policy": _given(minimum_backoff=min_backoff, maximum_backoff=max_backoff),
        "filter": filter_,
        "enable_message_ordering": ordering,
        "enable_exactly_once_delivery": exactly_once,
        "message_retention_duration": retention,
        "retain_acked_messages": retain_acked,
        "labels": pairs("--label", label_pairs),
    }
    return _given(**{name: value for name, value in wanted.items() if value not in (False, {})})


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@subscriptions.command("show")
@click.argument("subscription")
@json_option
@endpoint_options
def show_subscription(endpoint: Endpoint, subscription: str, as_json: bool) -> None:
    """Show how SUBSCRIPTION is configured."""
    path = endpoint.path("subscriptions", subscription)
    with connected(endpoint) as connection:
        found = connection.subscriber.get_subscription(subscription=path, **CALL)
    show_one(found, as_json)
    if as_json:
        return
    if push := _push_settings(resource_json(found)):
        click.echo("\n" + printable(f"pushed: {push}"))
    if pause := _pause(endpoint, path):
        click.echo("\n" + printable(f"paused until {pause['until']}: {pause['because']}"))


def _pause(endpoint: Endpoint, path: str) -> Mapping[str, Any] | None:
    """Only a Holdfast broker tells, where its port is not for gRPC alone."""
    if not endpoint.address:
        return None
    try:
        found = asyncio.run(get_json(f"http://{endpoint.address}", "/api/v1/pauses", subscription=path))
        return next(iter(found["pauses"]), None)
    except (HoldfastError, LookupError, TypeError):
        return None


@subscriptions.command("modify-push-config")
@click.argument("subscription")
@click.option("--push-endpoint", metavar="URL", required=True, help="Push messages to this URL; '' turns push off.")
@push_options
@json_option
@endpoint_options
def modify_push_config(endpoint: Endpoint, subscription: str, push_endpoint: str, as_json: bool, **push: Any) -> None:
    """Push what SUBSCRIPTION holds to another URL, in another way, or not any more.

    The flags are its whole push configuration: what is not given here is not kept from before.
    """
    path = endpoint.path("subscriptions", subscription)
    request = {"subscription": path, "push_config": _push_config(push_endpoint, push)}
    with connected(endpoint) as connection:
        connection.subscriber.modify_push_config(request=request, **CALL)
        changed = resource_json(connection.subscriber.get_subscription(subscription=path, **CALL))
    show_done(f"changed {path} to {_delivery(changed)}", changed, as_json)


@subscriptions.command("delete")
@click.argument("subscription")
@json_option
@endpoint_options
def delete_subscription(endpoint: Endpoint, subscription: str, as_json: bool) -> None:
    """Delete SUBSCRIPTION, with the messages that wait in it."""
    path = endpoint.path("subscriptions", subscription)
    with connected(endpoint) as connection:
        connection.subscriber.delete_subscription(subscription=path, **CALL)
    show_deleted(path, as_json)


@subscriptions.command("seek")
@click.argument("subscription")
@click.option("--time", "time_", metavar="TIME", help="RFC 3339, such as 2026-01-31T12:00:00Z, or `now`.")
@click.option("--ago", type=DURATION, help="So long ago, such as 10m.")
@click.option("--snapshot", help="What this snapshot holds.")
@json_option
@endpoint_options
def seek(
    endpoint: Endpoint,
    subscription: str,
    time_: str | None,
    ago: timedelta | None,
    snapshot: str | None,
    as_json: bool,
) -> None:
    """Move SUBSCRIPTION to a time or to a snapshot.

    Messages published before the time count as acked, those after it are delivered, again if need be.
    """
    if sum(value is not None for value in (time_, ago, snapshot)) != 1:
        raise click.UsageError("Give one of --time, --ago and --snapshot.")
    path = endpoint.path("subscriptions", subscription)
    if snapshot is not None:
        target = endpoint.path("snapshots", snapshot)
        request: dict[str, Any] = {"snapshot": target}
    else:
        when_ns = _moment(time_, ago)
        target, request = format_rfc3339(when_ns), {"time": _timestamp(when_ns)}
    with connected(endpoint) as connection:
        connection.subscriber.seek(request={"subscription": path, **request}, **CALL)
    show_done(f"moved {path} to {target}", {"subscription": path, "movedTo": target}, as_json)


def _moment(text: str | None, ago: timedelta | None) -> int:
    if text is None or text == "now":
        return time.time_ns() - round((ago or timedelta()).total_seconds() * NANOSECONDS)
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise BadInput("--time", f"must look like 2026-01-31T12:00:00Z, or be `now`, not {text!r}") from error


def _timestamp(when_ns: int) -> Any:
    from google.protobuf.timestamp_pb2 import Timestamp  # noqa: PLC0415

    seconds, nanos = divmod(when_ns, NANOSECONDS)
    return Timestamp(seconds=seconds, nanos=nanos)
