"""What makes two deliveries the same event: the message id, and a key that survives publishing it again. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from holdfast.consumer.app import Route
from holdfast.consumer.changes import LONGEST_ID_BYTES
from holdfast.consumer.documents import Mark
from holdfast.consumer.event import Event
from holdfast.model.replay_attributes import REPLAY_ID

# 52 base32 characters are all of a SHA-256.
DIGEST_CHARACTERS = 52

REPLAY_PREFIX = "replay-"


def logical_key(env: str, event: Event, route: Route) -> str:
    """ "" where nothing but the message id tells events apart. The topic is part of it: an eventId is its producer's,
    and two producers may count alike."""
    key = event.event_id
    if not key and route.identity is not None:
        identity = route.identity(event)
        key = digest(identity) if identity else ""
    if not key:
        return ""
    whole = f"{env}__{event.topic}__{key}"
    # Where the parts cannot be told from what joins them, another event could have the same key.
    if len(whole.encode()) > LONGEST_ID_BYTES or "/" in whole or whole.count("__") != 2:
        return digest({"env": env, "topic": event.topic, "key": key})
    return whole


def marks_of(event: Event, key: str, collection: str) -> tuple[Mark, ...]:
    """The first stops a redelivery of one message; then one that the desk sent again and that came twice under two
    ids; the last the same event published again."""
    keys = (transport_key(event.message_id), replay_key(event), key)
    return tuple(Mark(collection, one) for one in keys if one)


def transport_key(message_id: str) -> str:
    return message_id if _fits(message_id) else digest({"messageId": message_id})


def replay_key(event: Event) -> str:
    """ "" for what is no replay. Whoever forges one keeps only his own message from being applied."""
    replay_id = event.attributes.get(REPLAY_ID)
    return REPLAY_PREFIX + digest({"replayId": replay_id}) if replay_id else ""


def digest(identity: Mapping[str, Any]) -> str:
    """Of the canonical JSON: keys sorted, no spaces, so that equal fields give equal digests everywhere."""
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return base64.b32encode(hashlib.sha256(canonical.encode()).digest()).decode()[:DIGEST_CHARACTERS]


def _fits(message_id: str) -> bool:
    """Nor may it look like a key of an event, or of a replay."""
    if message_id.startswith(REPLAY_PREFIX):
        return False
    return "/" not in message_id and message_id not in (".", "..") and "__" not in message_id
