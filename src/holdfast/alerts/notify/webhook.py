"""A webhook of the user's own: the whole notification as JSON, signed as Standard Webhooks asks.

The signature is over the id, the time and the body. The id stays the same however often it is sent, so who keeps ids
does nothing twice.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.notification import Notification, to_json
from holdfast.alerts.notify.posting import Poster, as_body
from holdfast.alerts.notify.secret import Secret
from holdfast.clock import NANOSECONDS, Clock

# Before a secret that is in base64.
PREFIX = "whsec_"


class Webhook:
    def __init__(self, poster: Poster, secret: Secret, clock: Clock) -> None:
        self._poster = poster
        self._key = key_of(secret.value)
        self._clock = clock

    @property
    def where(self) -> str:
        return self._poster.where

    async def send(self, notification: Notification) -> NotSent | None:
        body = as_body(to_json(notification))
        seconds = self._clock.now_ns() // NANOSECONDS
        headers = {
            "webhook-id": notification.id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": signature(self._key, notification.id, seconds, body),
        }
        return await self._poster.post(body, headers)


def key_of(secret: str) -> bytes:
    """ValueError where it says that it is base64 and is not."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(f"what follows {PREFIX} must be base64") from error


def signature(key: bytes, webhook_id: str, seconds: int, body: bytes) -> str:
    signed = f"{webhook_id}.{seconds}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
