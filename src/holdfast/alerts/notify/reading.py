"""The receivers of the settings. What is wrong is told by its key, and what may be secret is never shown.

[[alerts.receivers]]
name = "ops"
kind = "slack"
url_env = "SLACK_WEBHOOK_URL"
match = ['severity="critical"']
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.alerts.notify.channel import Channel
from holdfast.alerts.notify.log_channel import LogChannel
from holdfast.alerts.notify.mail import PORTS, STARTTLS, Email, MailServer
from holdfast.alerts.notify.matching import RULE, parse_matchers
from holdfast.alerts.notify.pagerduty import ENQUEUE, PagerDuty
from holdfast.alerts.notify.posting import Poster
from holdfast.alerts.notify.receiver import Receiver
from holdfast.alerts.notify.secret import Secret, Unshown, needed, secret_from
from holdfast.alerts.notify.slack import Slack
from holdfast.alerts.notify.webhook import Webhook, key_of
from holdfast.alerts.selector import Matcher
from holdfast.alerts.tables import Table
from holdfast.clock import Clock
from holdfast.errors import BadInput, SettingError
from holdfast.outgoing.client import OutgoingClient
from holdfast.outgoing.targets import Target, parse_target

KEY = "alerts.receivers"

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600

_COMMON = (
    "name",
    "kind",
    "match",
    "group_by",
    "group_wait",
    "group_interval",
    "repeat",
    "per_minute",
    "resolved",
    "give_up",
)


class Reading:
    """`client` and `clock` are what the channels send by."""

    def __init__(self, client: OutgoingClient, clock: Clock, environ: Mapping[str, str]) -> None:
        self._client = client
        self._clock = clock
        self._environ = environ

    def receivers(self, tables: Sequence[Mapping[str, Any]]) -> list[Receiver]:
        found: dict[str, Receiver] = {}
        for number, raw in enumerate(tables):
            table = Table(f"{KEY}[{number}]", raw)
            receiver = self._receiver(table)
            if receiver.name in found:
                raise SettingError(table.key("name"), receiver.name, "another receiver has this name")
            found[receiver.name] = receiver
        return [*found.values()]

    def _receiver(self, table: Table) -> Receiver:
        name = table.text("name")
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name):
            allowed = "must be lower-case letters, digits, - and _, a letter first, 40 at most"
            raise SettingError(table.key("name"), name, allowed)
        kind = table.choice("kind", [*_KINDS])
        keys, make = _KINDS[kind]
        _only(table, (*_COMMON, *keys), kind)
        is_incident = kind == "pagerduty"
        return Receiver(
            name,
            kind,
            make(self, table),
            _matchers(table),
            _group_by(table),
            table.duration("group_wait", 10, 0, HOUR),
            table.duration("group_interval", MINUTE, 1, DAY),
            table.duration("repeat", 4 * HOUR, MINUTE, 7 * DAY),
            _from_one(table, "per_minute", 60 if is_incident else 20, 1000),
            _resolved(table, is_incident=is_incident),
            table.duration("give_up", DAY, MINUTE, 7 * DAY),
            joins=not is_incident,
        )

    # Their channels.

    def _slack(self, table: Table) -> Channel:
        url = needed(table, "url", self._environ)
        return Slack(self._poster(_target_of(table, "url", url), [url]))

    def _pagerduty(self, table: Table) -> Channel:
        key = needed(table, "routing_key", self._environ)
        target = _target(table, "url", table.text("url", ENQUEUE))
        return PagerDuty(self._poster(target, [key]), key, table.text("source", socket.gethostname() or "holdfast"))

    def _webhook(self, table: Table) -> Channel:
        secret = needed(table, "secret", self._environ)
        try:
            key_of(secret.value)
        except ValueError as error:
            raise SettingError(table.key("secret_env"), Unshown(), str(error)) from None
        hidden = secret_from(table, "url", self._environ)
        if hidden and "url" in table.raw:
            raise SettingError(table.key("url"), Unshown(), "there is another url from elsewhere; only one can hold")
        target = _target_of(table, "url", hidden) if hidden else _target(table, "url", table.text("url", ""))
        poster = self._poster(target, [secret, hidden] if hidden else [secret])
        return Webhook(poster, secret, self._clock)

    def _email(self, table: Table) -> Channel:
        security = table.choice("security", [*PORTS], STARTTLS)
        username = table.text("username") if "username" in table.raw else ""
        password = needed(table, "password", self._environ) if username else None
        if password and security not in ("starttls", "tls"):
            raise SettingError(table.key("security"), security, "must be starttls or tls where there is a password")
        server = MailServer(
            table.text("host"),
            _from_one(table, "port", PORTS[security], 65535),
            security,
            username,
            password,
            table.text("ca_file") if "ca_file" in table.raw else "",
        )
        to = table.texts("to", "must be a list of addresses, such as ops@example.com")
        return Email(server, _address(table, "from", table.text("from")), [_address(table, "to", one) for one in to])

    def _log(self, table: Table) -> Channel:
        return LogChannel()

    def _poster(self, target: Target, secrets: Sequence[Secret]) -> Poster:
        paths = [Secret(target.path)] if len(target.path) > 1 else []  # an error may name it without the host
        return Poster(self._client, target, self._clock, [*secrets, *paths])


_Make = Callable[[Reading, Table], Channel]

_KINDS: Mapping[str, tuple[tuple[str, ...], _Make]] = {
    "slack": (("url_env", "url_file"), Reading._slack),
    "pagerduty": (("routing_key_env", "routing_key_file", "url", "source"), Reading._pagerduty),
    "webhook": (("url", "url_env", "url_file", "secret_env", "secret_file"), Reading._webhook),
    "email": (
        ("host", "port", "security", "username", "password_env", "password_file", "from", "to", "ca_file"),
        Reading._email,
    ),
    "log": ((), Reading._log),
}

KINDS = (*_KINDS,)


def has_log(tables: Sequence[Mapping[str, Any]]) -> bool:
    return any(table.get("kind") == "log" for table in tables)


def _only(table: Table, known: Sequence[str], kind: str) -> None:
    """What stands there is not shown: it may be a secret in the wrong place."""
    for name in table.raw:
        if name not in known:
            allowed = f"there is no such key; for a receiver of kind {kind} these are: {', '.join(known)}"
            if f"{name}_env" in known:
                allowed = f"is a secret and does not belong into a file of settings: use {name}_env or {name}_file"
            raise SettingError(table.key(name), Unshown(), allowed)


def _matchers(table: Table) -> tuple[Matcher, ...]:
    if table.raw.get("match", []) == []:
        return ()
    try:
        return parse_matchers(table.texts("match", "must be a list of conditions, such as 'severity=\"critical\"'"))
    except ValueError as error:
        raise SettingError(table.key("match"), table.raw["match"], str(error)) from error


def _group_by(table: Table) -> Sequence[str]:
    """All in one group where the list is empty."""
    if "group_by" not in table.raw:
        return (RULE,)
    if table.raw["group_by"] == []:
        return ()
    return tuple(table.texts("group_by", "must be a list of labels, such as rule, severity or subscription"))


def _from_one(table: Table, name: str, default: int, most: int) -> int:
    value = table.whole(name, default)
    if not 1 <= value <= most:
        raise SettingError(table.key(name), value, f"must be from 1 to {most}")
    return value


def _resolved(table: Table, *, is_incident: bool) -> bool:
    told = table.flag("resolved", default=True)
    if is_incident and not told:
        raise SettingError(table.key("resolved"), told, "must be true for pagerduty: its incidents would never end")
    return told


def _target(table: Table, name: str, url: str) -> Target:
    try:
        return parse_target(name, url)
    except BadInput as error:
        raise SettingError(table.key(name), Unshown(), error.why.replace(url, "it") if url else error.why) from None


def _target_of(table: Table, name: str, url: Secret) -> Target:
    try:
        return parse_target(name, url.value)
    except BadInput:
        key = table.key(f"{name}_env" if f"{name}_env" in table.raw else f"{name}_file")
        raise SettingError(key, Unshown(), "names what is no URL that begins with https:// or http://") from None


def _address(table: Table, name: str, address: str) -> str:
    if not re.fullmatch(r"[^@\s<>,;]+@[^@\s<>,;]+", address) or not address.isprintable():
        raise SettingError(table.key(name), address, "must be an address such as ops@example.com")
    return address
