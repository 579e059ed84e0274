"""The options by which commands select failures, the same in all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from holdfast.errors import BadInput

# In the order of the help. Those that are not flags, with what the command line calls their value.
_OPTIONS = (
    click.option("--id", "ids", metavar="ID", multiple=True, help="These alone. May be repeated."),
    click.option("--status", metavar="STATUS", multiple=True, help="With this status. May be repeated."),
    click.option("--reason", metavar="REASON", help="With this failure reason."),
    click.option("--subscription", metavar="NAME", help="Of this subscription: an id, or a full path."),
    click.option("--topic", metavar="NAME", help="From this topic: an id, a full path, or unknown."),
    click.option("--group", metavar="FINGERPRINT", help="Of this group."),
    click.option("--message-id", metavar="ID", help="Of this message."),
    click.option("--since", metavar="TIME", help="Recorded since then: 24h, 7d, 2026-01-31T09:00:00Z."),
    click.option("--until", metavar="TIME", help="Recorded before then."),
    click.option("--attempts", metavar="N..M", help="Delivered so often: 3, 3.., ..5, 3..5."),
    click.option("--attribute", metavar="NAME=VALUE", multiple=True, help="With this attribute. May be repeated."),
    click.option("--payload", metavar="PATH=VALUE", multiple=True, help="With this in the payload. May be repeated."),
    click.option("--text", metavar="TEXT", help="With this text in the error or the payload."),
    click.option("--hold/--no-hold", default=None, help="Under legal hold, or not."),
    click.option("--replay", metavar="ID", help="Sent by this replay."),
)

_PLAIN = ("reason", "subscription", "topic", "group", "since", "until", "attempts", "text", "hold", "replay")


def selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them; the command gets `selection`: the form that deadletter/selecting.py reads, {} when all are meant."""

    @functools.wraps(command)
    def selecting(*args: Any, **options: Any) -> None:
        command(*args, selection=_form(options), **options)

    for option in reversed(_OPTIONS):
        selecting = option(selecting)
    return selecting


def _form(options: dict[str, Any]) -> dict[str, Any]:
    """Takes its options out of the others."""
    form: dict[str, Any] = {
        "id": list(options.pop("ids")),
        "status": list(options.pop("status")),
        "messageId": options.pop("message_id"),
        "attribute": _pairs("--attribute", options.pop("attribute")),
        "payload": _pairs("--payload", options.pop("payload")),
    }
    form |= {name: options.pop(name) for name in _PLAIN}
    return {name: value for name, value in form.items() if value not in (None, [], {})}


def _pairs(option: str, values: Sequence[str]) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, wanted = value.partition("=")
        if not equals:
            raise BadInput(option, f"must look like NAME=VALUE, not {value!r}")
        if name in pairs:
            raise BadInput(option, f"{name!r} is given twice, and only one can hold")
        pairs[name] = wanted
    return pairs
