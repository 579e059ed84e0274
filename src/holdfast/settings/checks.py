"""What a value may be: each check gives None, or says in words what is allowed."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import BadInput
from holdfast.model.names import check_project, check_subscription, check_topic, subscription_path

Check = Callable[[Any], str | None]  # None when the value is allowed, else what is allowed


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be from {low:g} to {high:g}"


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"


def not_empty(value: str) -> str | None:
    return None if value else "must not be empty"


def allowed_networks(value: str) -> str | None:
    try:
        for part in value.split(","):
            if part.strip() not in ("auto", "none", "loopback", "private"):
                ipaddress.ip_network(part.strip())
    except ValueError:
        return "must be auto, none, loopback, private or networks such as 10.1.0.0/16, separated by commas"
    return None


def url_or_empty(value: str) -> str | None:
    parts = urlsplit(value)
    if not value or (parts.scheme in ("http", "https") and parts.netloc):
        return None
    return "must be an http:// or https:// URL"


def project_id(value: str) -> str | None:
    return _complaint(check_project, f"projects/{value}", "must be a project id, without spaces and slashes")


def topic_id(value: str) -> str | None:
    allowed = "must be a topic id: 3 to 255 letters, digits and -_.~+%, a letter first, not starting with 'goog'"
    return _complaint(check_topic, f"projects/any/topics/{value}", allowed)


def topic_or_empty(value: str) -> str | None:
    if value.startswith("projects/"):
        return _complaint(check_topic, value, "must be a topic id, or projects/PROJECT/topics/ID")
    return topic_id(value) if value else None


def subscriptions(names: Sequence[str]) -> str | None:
    allowed = "must be subscription ids, or projects/PROJECT/subscriptions/ID"
    complaints = (_complaint(check_subscription, subscription_path("any", name), allowed) for name in names)
    return next(filter(None, complaints), None)


def _complaint(check: Callable[[str, str], None], path: str, allowed: str) -> str | None:
    try:
        check("path", path)
    except BadInput:
        return allowed
    return None


PORT = between(0, 65535)
