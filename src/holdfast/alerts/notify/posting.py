"""A POST with JSON, and what its answer means for a notification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import holdfast
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.secret import Secret
from holdfast.clock import NANOSECONDS, Clock
from holdfast.outgoing.answers import Answer, NoAnswer, printable
from holdfast.outgoing.client import OutgoingClient
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.targets import Target

TIMEOUT_SECONDS = 10.0

# Of what an endpoint says about its refusal.
_MOST_BODY_BYTES = 4096
_LONGEST_SAID = 200

# These pass by themselves; 429 says when.
_LATER = frozenset({408, 421, 425, 429})

USER_AGENT = f"holdfast-alerts/{holdfast.__version__}"


def as_body(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Poster:
    """To one URL. `secrets` are taken out of whatever is told of it."""

    def __init__(self, client: OutgoingClient, target: Target, clock: Clock, secrets: Sequence[Secret]) -> None:
        self._client = client
        self._target = target
        self._clock = clock
        self._secrets = secrets

    @property
    def where(self) -> str:
        """Without path and query: those may be secret."""
        return f"{self._target.scheme}://{self._target.authority}"

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> NotSent | None:
        own = {"Content-Type": "application/json", "User-Agent": USER_AGENT, **(headers or {})}
        head = request_head("POST", self._target, own) + f"Content-Length: {len(body)}\r\n\r\n".encode()
        answer = await self._client.send(self._target, (head, body), TIMEOUT_SECONDS, most_body_bytes=_MOST_BODY_BYTES)
        if isinstance(answer, NoAnswer) and answer.began_with:
            answer = Answer(answer.began_with, {})  # of a body that nobody needs: an error is often a whole page
        if isinstance(answer, NoAnswer):
            return NotSent(self._shown(answer.error), refused=answer.kind == "blocked")
        if 200 <= answer.status < 300:
            return None
        # Secrets first: a cut could leave the half of one, which nobody finds any more.
        said = printable(self._shown(answer.body.decode(errors="replace").strip()), _LONGEST_SAID)
        error = f"{self._target.authority} answered {answer.status}" + (f": {said}" if said else "")
        is_refusal = 300 <= answer.status < 500 and answer.status not in _LATER
        return NotSent(self._shown(error), is_refusal, retry_after_seconds(answer, self._clock.now_ns()))

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = secret.taken_out_of(text)
        return text


def retry_after_seconds(answer: Answer, now_ns: int) -> float | None:
    """Seconds, or a date."""
    value = answer.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - now_ns / NANOSECONDS, 0.0)
    except (ValueError, OverflowError):
        return None
