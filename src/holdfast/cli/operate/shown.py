"""How resources and messages look: lines and tables for people, Pub/Sub's own JSON for programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from holdfast.cli.output import print_fields, print_json, print_table, printable
from holdfast.model.names import short_id
from holdfast.model.timestamps import format_rfc3339

# Text with these is still text; they are shown escaped, so that a message stays on its line.
_LINE_CHARACTERS = "\t\r\n"

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


# Resources.


def resource_json(resource: Any) -> dict[str, Any]:
    """As Pub/Sub's REST API writes it."""
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415

    found: dict[str, Any] = MessageToDict(type(resource).pb(resource))
    return found


def show_created(resource: Any, as_json: bool) -> None:
    found = resource_json(resource)
    show_done(f"created {found['name']}", found, as_json)


def show_deleted(name: str, as_json: bool) -> None:
    show_done(f"deleted {name}", {"deleted": name}, as_json)


def show_done(what: str, value: dict[str, Any], as_json: bool) -> None:
    """`what` for people, `value` for programs."""
    if as_json:
        print_json(value)
    else:
        click.echo(printable(what))


def show_one(resource: Any, as_json: bool, text: str = "") -> None:
    """`text` names a field that people read as the lines that it is."""
    found = resource_json(resource)
    if as_json:
        print_json(found)
        return
    lines = found.pop(text, "").splitlines()
    print_fields(_flat(found))
    if lines:
        click.echo("\n" + "\n".join(printable(line.replace("\t", "    ")) for line in lines))


def show_list(
    kind: str,
    resources: Sequence[Any],
    columns: Mapping[str, Callable[[dict[str, Any]], object]],
    where: str,
    as_json: bool,
) -> None:
    """`kind` is topics, subscriptions …; `columns` are titles with what stands under them."""
    found = [resource_json(resource) for resource in resources]
    if as_json:
        print_json({kind: found})
    elif not found:
        click.echo(printable(f"no {kind} in {where}"))
    else:
        print_table(list(columns), [[cell(one) for cell in columns.values()] for one in found])


def short_name(resource: Mapping[str, Any]) -> str:
    return short_id(resource["name"])


def labels(resource: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(resource.get("labels", {}).items()))


def short_duration(text: str) -> str:
    """604800s is shown as 7d."""
    seconds = text.removesuffix("s")
    if not seconds.isdigit():
        return text
    for size, unit in _UNITS:
        if int(seconds) and int(seconds) % size == 0:
            return f"{int(seconds) // size}{unit}"
    return text


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """retryPolicy: {minimumBackoff: 10s} is shown as retryPolicy.minimumBackoff 10s."""
    flat: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)))
    return flat


# Messages.


def message_json(received: Any) -> dict[str, Any]:
    """`data` is base64 as in the REST API; `text` is there too when the data is UTF-8."""
    message = received.message
    found: dict[str, Any] = {
        "messageId": message.message_id,
        "publishTime": _publish_time(message),
        "attributes": dict(sorted(message.attributes.items())),
        "data": base64.b64encode(message.data).decode("ascii"),
    }
    text = _utf8(message.data)
    if text is not None:
        found["text"] = text
    if message.ordering_key:
        found["orderingKey"] = message.ordering_key
    if received.delivery_attempt:
        found["deliveryAttempt"] = received.delivery_attempt
    return found


def message_line(received: Any) -> str:
    """Time, id, what else there is, and the data at the end, where its length does not matter."""
    message = received.message
    parts = [_publish_time(message), message.message_id]
    if received.delivery_attempt:
        parts.append(f"attempt {received.delivery_attempt}")
    if message.ordering_key:
        parts.append(f"key {message.ordering_key}")
    if message.attributes:
        parts.append(json.dumps(dict(sorted(message.attributes.items())), ensure_ascii=False))
    parts.append(payload(message.data))
    return printable("  ".join(parts))


def payload(data: bytes) -> str:
    """Text if all of it can be shown, else base64 that says so."""
    text = _utf8(data)
    if text is not None and all(char.isprintable() or char in _LINE_CHARACTERS for char in text):
        return text
    return "base64:" + base64.b64encode(data).decode("ascii")


def json_line(value: Any) -> str:
    """On one line; what could steer a terminal is escaped, as JSON can."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _publish_time(message: Any) -> str:
    when = type(message).pb(message).publish_time
    return format_rfc3339(when.ToNanoseconds())
