"""An endpoint agrees before it is sent anything, where that is asked for. Pub/Sub has no such step, so it is an opt-in.

The handshake is the one of CloudEvents' HTTP web hooks: an OPTIONS request names who wants to send, and the endpoint
answers with the origin it allows and, if it likes, a rate. An endpoint that knows nothing of it does not answer so,
which is the point: nobody can be flooded by a subscription that he did not ask for.
"""

from __future__ import annotations

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS
from holdfast.model.resources import (
    DEFAULT_MAXIMUM_BACKOFF_SECONDS,
    DEFAULT_MINIMUM_BACKOFF_SECONDS,
    EndpointConsent,
    Subscription,
)
from holdfast.outgoing.client import Answer, NoAnswer, OutgoingClient, request_head
from holdfast.outgoing.targets import Target

ORIGIN = "WebHook-Request-Origin"
ALLOWED_ORIGIN = "WebHook-Allowed-Origin"
ALLOWED_RATE = "WebHook-Allowed-Rate"  # requests a minute, or *


def has_agreed(config: Subscription) -> bool:
    return bool(config.consent and config.push and config.consent.endpoint == config.push.endpoint)


class Handshake:
    """With the endpoint of one subscription. `error` says why it has not agreed yet."""

    def __init__(self, client: OutgoingClient, origin: str) -> None:
        self.error = ""
        self.not_before_ns = 0  # the next time to ask
        self._client = client
        self._origin = origin
        self._failures = 0

    async def ask(self, endpoint: str, target: Target, timeout_seconds: float, now_ns: int) -> EndpointConsent | None:
        """None when it did not agree: ask again, but not before `not_before_ns`."""
        request = request_head("OPTIONS", target, {ORIGIN: self._origin}) + b"Content-Length: 0\r\n\r\n"
        result = await self._client.send(target, request, timeout_seconds)
        error = self._why_not(result)
        if error:
            self.failed(error, now_ns)
            return None
        assert isinstance(result, Answer)
        return EndpointConsent(endpoint, _per_second(result.headers.get(ALLOWED_RATE.lower(), "*")))

    def failed(self, error: str, now_ns: int) -> None:
        """It did not agree, or that it did could not be kept."""
        self.error = error
        self._failures += 1
        wait = backoff_seconds(DEFAULT_MINIMUM_BACKOFF_SECONDS, DEFAULT_MAXIMUM_BACKOFF_SECONDS, self._failures)
        self.not_before_ns = now_ns + round(wait * NANOSECONDS)

    def _why_not(self, result: Answer | NoAnswer) -> str:
        if isinstance(result, NoAnswer):
            return f"the endpoint could not be asked whether it agrees: {result.error}"
        if not 200 <= result.status < 300:
            return f"the endpoint answered {result.status} when it was asked whether it agrees"
        allowed = result.headers.get(ALLOWED_ORIGIN.lower(), "")
        if not allowed or allowed.lower() not in ("*", self._origin.lower()):
            return f"the endpoint did not agree: its answer has no {ALLOWED_ORIGIN}: {self._origin}"
        if result.headers.get(ALLOWED_RATE.lower(), "*").strip("0") == "":
            return f"the endpoint agreed to no requests at all: {ALLOWED_RATE}: 0"
        return ""


def _per_second(rate: str) -> float:
    """0 means any rate, also where the endpoint's answer is no number."""
    return int(rate[:9]) / 60 if rate.isascii() and rate.isdigit() else 0.0
