"""Pub/Sub resource names: projects/<project>/topics/<id> and projects/<project>/subscriptions/<id>."""

from __future__ import annotations

import re

from holdfast.errors import BadInput

# Cloud Pub/Sub: a letter first, then letters, digits and - _ . ~ + %, 3 to 255 characters, and not "goog" in front.
_ID = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}", re.ASCII)
_PROJECT = re.compile(r"[^/\s]{1,128}")

DELETED_TOPIC = "_deleted-topic_"

# What fails in subscription "<id>" goes to topic "<id>.dlq", which the desk reads by subscription "<id>.dlq.desk".
DEAD_LETTER_SUFFIX = ".dlq"
DESK_SUFFIX = ".dlq.desk"

# Where a broker cannot send to subscription "<id>" alone, topic "<id>.replay" with one subscription of the same name
# feeds the same consumer.
REPLAY_SUFFIX = ".replay"


def topic_path(project: str, topic: str) -> str:
    """Takes a topic id or a full path and gives the path."""
    return topic if topic.startswith("projects/") else f"projects/{project}/topics/{topic}"


def subscription_path(project: str, subscription: str) -> str:
    return subscription if subscription.startswith("projects/") else f"projects/{project}/subscriptions/{subscription}"


def dead_letter_topic(subscription: str) -> str:
    """The topic that takes what fails in `subscription`. Both are full paths."""
    return topic_path(project_of(subscription), short_id(subscription) + DEAD_LETTER_SUFFIX)


def desk_subscription(subscription: str) -> str:
    """The subscription of that topic which the desk reads. Both are full paths."""
    return subscription_path(project_of(subscription), short_id(subscription) + DESK_SUFFIX)


def replay_topic(subscription: str) -> str:
    """The topic that leads to the consumer of `subscription` alone. Both are full paths."""
    return topic_path(project_of(subscription), short_id(subscription) + REPLAY_SUFFIX)


def replay_subscription(subscription: str) -> str:
    """The subscription of that topic. Both are full paths."""
    return subscription + REPLAY_SUFFIX


def is_replay(subscription: str) -> bool:
    return subscription.endswith(REPLAY_SUFFIX)


def original_subscription(subscription: str) -> str:
    """Of "<id>.replay" it is "<id>", of any other itself. A full path or a short id, and so is what it gives."""
    return subscription.removesuffix(REPLAY_SUFFIX)


def short_id(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def project_of(path: str) -> str:
    return path.split("/", 2)[1]


def is_subscription(path: str) -> bool:
    """Whether it has the form of a subscription's path."""
    parts = path.split("/", 3)
    return len(parts) == 4 and (parts[0], parts[2]) == ("projects", "subscriptions")


def check_project(field: str, value: str) -> None:
    parts = value.split("/")
    if len(parts) != 2 or parts[0] != "projects" or not _PROJECT.fullmatch(parts[1]):
        raise BadInput(field, f"must look like projects/PROJECT, not {value[:300]!r}")


def check_topic(field: str, value: str) -> None:
    _check(field, value, "topics")


def check_snapshot(field: str, value: str) -> None:
    _check(field, value, "snapshots")


def check_subscription(field: str, value: str) -> None:
    _check(field, value, "subscriptions")


def check_schema(field: str, value: str) -> None:
    _check(field, value, "schemas")


def _check(field: str, value: str, kind: str) -> None:
    parts = value.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != kind or not _PROJECT.fullmatch(parts[1]):
        raise BadInput(field, f"must look like projects/PROJECT/{kind}/ID, not {value[:300]!r}")
    if not _ID.fullmatch(parts[3]) or parts[3].startswith("goog"):
        raise BadInput(
            field,
            f"{parts[3][:300]!r} is not a valid id: 3 to 255 letters, digits and -_.~+%, "
            "a letter first, not starting with 'goog'",
        )


def normalized(text: str) -> str:
    """As part of a document's id: lower-case letters and digits of any script and . - _; never "__", which joins
    parts. "" where nothing is left."""
    return re.sub(r"_+", "_", re.sub(r"[^\w.-]+", "-", text.lower())).strip("-_")
