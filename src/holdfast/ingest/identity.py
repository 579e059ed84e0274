"""What makes two requests the same event. The broker takes each REPLAY_ID once, so it is also what stops a duplicate.

The content is part of it: another event under the same key is published, not taken for what was there.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

from holdfast.model.strict_json import parse_strict_json

LONGEST_KEY = 200

EVENT_ID = "eventId"

PREFIX = "ingest."


def own_key(data: bytes) -> str:
    """The event id that a payload tells of itself, "" where it tells none."""
    try:
        event = parse_strict_json(data, any_number=True)
    except ValueError:
        return ""
    told = event.get(EVENT_ID) if isinstance(event, dict) else None
    return told if isinstance(told, str) and 1 <= len(told) <= LONGEST_KEY and told.isprintable() else ""


def digest_key(data: bytes) -> str:
    """Instead of an event id that nobody may see, as a failure is shown under its key. It tells the same events apart:
    the content is part of them anyway."""
    return hashlib.sha256(data).hexdigest()[:32] if own_key(data) else ""


def publish_id(topic: str, key: str, data: bytes, attributes: Mapping[str, str], ordering_key: str) -> str:
    told = [topic, key, hashlib.sha256(data).hexdigest(), sorted(attributes.items()), ordering_key]
    digest = hashlib.sha256(json.dumps(told).encode()).digest()
    return PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")
