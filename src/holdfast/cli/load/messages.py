"""Push requests, ready for the wire: Pub/Sub's envelope around a payload, and messages that come again."""

from __future__ import annotations

import base64
import json
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.cli.load.payloads import Payload
from holdfast.model.timestamps import format_rfc3339

# A redelivery is of one of the last so many.
REMEMBERED = 1000


@dataclass(slots=True)
class _Sent:
    message: bytes
    attempts: int = 1


class Messages:
    """`run` starts every message id: digits, as Pub/Sub's are, and other ones in each run."""

    def __init__(
        self,
        payload: Payload,
        *,
        topic: str,
        subscription: str,
        run: str,
        redelivered_share: float = 0.0,
        with_attempt: bool = False,
        seed: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._payload = payload
        self._attributes = json.dumps({"topic": topic}).encode()
        self._subscription = json.dumps(subscription).encode()
        self._run = run.encode()
        self._share = redelivered_share
        self._with_attempt = with_attempt
        self._chance = random.Random(seed)
        self._now_ns = now_ns
        self._sent: deque[_Sent] = deque(maxlen=REMEMBERED)
        self.made = 0
        self.redelivered = 0

    def next(self) -> bytes:
        """The body of the next request."""
        if self._sent and self._chance.random() < self._share:
            return self._again(self._chance.choice(self._sent))
        sent = _Sent(self._message())
        if self._share:
            self._sent.append(sent)
        return self._envelope(sent)

    def _again(self, sent: _Sent) -> bytes:
        sent.attempts += 1
        self.redelivered += 1
        return self._envelope(sent)

    def _message(self) -> bytes:
        number, now_ns = self.made, self._now_ns()
        self.made += 1
        return b'{"data":"%b","messageId":"%b%08d","publishTime":"%b","attributes":%b}' % (
            base64.b64encode(self._payload(number, now_ns)),
            self._run,
            number,
            format_rfc3339(now_ns).encode(),
            self._attributes,
        )

    def _envelope(self, sent: _Sent) -> bytes:
        attempt = b',"deliveryAttempt":%d' % sent.attempts if self._with_attempt else b""
        return b'{"message":%b,"subscription":%b%b}' % (sent.message, self._subscription, attempt)
