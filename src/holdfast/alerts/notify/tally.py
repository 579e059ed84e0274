"""How each receiver did since this process started: for metrics, and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.alerts.notify.channel import NotSent
from holdfast.metrics import alerts as metrics
from holdfast.metrics.metric import Family, Sample

SENT, RETRIED, REFUSED, SILENCED, GIVEN_UP = "sent", "retried", "refused", "silenced", "given_up"
RESULTS = (SENT, RETRIED, REFUSED, SILENCED, GIVEN_UP)


@dataclass(slots=True)
class Last:
    sent_ns: int | None = None
    failed_ns: int | None = None
    error: str = ""


class Tally:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._last: dict[str, Last] = {}

    def sent(self, receiver: str, now_ns: int) -> None:
        self._counts[receiver, SENT] += 1
        self.last(receiver).sent_ns = now_ns

    def failed(self, receiver: str, result: NotSent, now_ns: int) -> None:
        self._counts[receiver, REFUSED if result.refused else RETRIED] += 1
        last = self.last(receiver)
        last.failed_ns, last.error = now_ns, result.error

    def silenced(self, receiver: str, count: int) -> None:
        self._counts[receiver, SILENCED] += count

    def gave_up(self, receiver: str) -> None:
        self._counts[receiver, GIVEN_UP] += 1

    def last(self, receiver: str) -> Last:
        return self._last.setdefault(receiver, Last())

    def families(self, waiting: Mapping[str, int]) -> list[Family]:
        """`waiting` has all receivers."""
        counts = [Sample((name, result), self._counts[name, result]) for name in waiting for result in RESULTS]
        return [
            Family(metrics.NOTIFICATIONS, counts),
            Family(metrics.WAITING, [Sample((name,), count) for name, count in waiting.items()]),
        ]
