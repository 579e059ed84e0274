"""What is shown, as values: the same for the screen, for plain text and for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.top.asking import Rows
from holdfast.cli.top.history import History, quantile
from holdfast.metrics import alerts, broker, consumer, desk
from holdfast.metrics.metric import Metric

Number = float | None


@dataclass(frozen=True, slots=True)
class Process:
    """`error` is why it does not answer."""

    url: str
    part: str
    version: str
    started: float
    error: str


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """Rates are a second. `push` is what GET /api/v1/push tells of it, or None for one that is not pushed."""

    name: str
    backlog: Number
    outstanding: Number
    oldest: Number
    incoming: Number
    delivered: Number
    acked: Number
    nacked: Number
    expired: Number
    dead_lettered: Number
    paused: bool
    push: Mapping[str, Any] | None

    @property
    def failing(self) -> float:
        return sum(one or 0.0 for one in (self.nacked, self.expired, self.dead_lettered))


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    published: Number
    bytes: Number


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """Of one topic. Times in seconds."""

    topic: str
    handled: int
    outcomes: Mapping[str, Number]
    p50: Number
    p99: Number


@dataclass(frozen=True, slots=True)
class Work:
    """Of all consumers together. `answers` by the first digit of their status."""

    queue: Number
    in_hands: Number
    store_retries: Number
    store_errors: Mapping[str, Number]
    answers: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Desk:
    statuses: Mapping[str, float]
    reasons: Mapping[str, float]
    groups: Mapping[str, float]
    mended: Number
    open_groups: Rows
    replays: Rows


@dataclass(frozen=True, slots=True)
class Picture:
    processes: Sequence[Process]
    subscriptions: Sequence[SubscriptionRow] = ()
    topics: Sequence[TopicRow] = ()
    consumers: Sequence[ConsumerRow] = ()
    work: Work | None = None
    desk: Desk | None = None
    alerts: Mapping[str, float] = field(default_factory=dict)
    firing: Rows = ()


def picture(histories: Sequence[History]) -> Picture:
    return Picture(
        processes=[_process(one) for one in histories],
        subscriptions=_subscriptions(histories),
        topics=_topics(histories),
        consumers=_consumers(histories),
        work=_work(histories),
        desk=_desk(histories),
        alerts={
            labels[0]: _sum(one.value(alerts.FIRING, labels) for one in histories) or 0.0
            for labels in _labels(histories, alerts.FIRING)
        },
        firing=_rows(histories, lambda history: history.now.alerts if history.now else None),
    )


def _process(history: History) -> Process:
    now = history.now
    version, part = now.version_and_part if now else ("", "")
    return Process(history.url, part, version, now.started if now else 0.0, history.error)


def _subscriptions(histories: Sequence[History]) -> list[SubscriptionRow]:
    pushed = {
        str(row.get("subscription")): row for row in _rows(histories, lambda one: one.now.push if one.now else None)
    }
    return [
        SubscriptionRow(
            name=labels[0],
            backlog=_max(one.value(broker.BACKLOG, labels) for one in histories),
            outstanding=_max(one.value(broker.OUTSTANDING, labels) for one in histories),
            oldest=_max(one.value(broker.OLDEST_UNACKED, labels) for one in histories),
            incoming=_sum(_incoming(one, labels) for one in histories),
            delivered=_sum(one.rate(broker.DELIVERED, labels) for one in histories),
            acked=_sum(one.rate(broker.ACKED, labels) for one in histories),
            nacked=_sum(one.rate(broker.NACKED, labels) for one in histories),
            expired=_sum(one.rate(broker.EXPIRED, labels) for one in histories),
            dead_lettered=_sum(one.rate(broker.DEAD_LETTERED, labels) for one in histories),
            paused=bool(_max(one.value(broker.PAUSED, labels) for one in histories)),
            push=pushed.get(labels[0]),
        )
        for labels in _labels(histories, broker.DELIVERED)
    ]


def _incoming(history: History, labels: tuple[str, ...]) -> Number:
    """What is published is counted by topic, and a filter may leave some of it out: what came to this subscription is
    what has left it and what it has more of."""
    left = [history.rate(metric, labels) for metric in (broker.ACKED, broker.DEAD_LETTERED)]
    more = history.growth(broker.BACKLOG, labels)
    if more is None or None in left:
        return None
    return max(more + sum(one or 0.0 for one in left), 0.0)


def _topics(histories: Sequence[History]) -> list[TopicRow]:
    return [
        TopicRow(
            labels[0],
            _sum(one.rate(broker.PUBLISHED, labels) for one in histories),
            _sum(one.rate(broker.PUBLISHED_BYTES, labels) for one in histories),
        )
        for labels in _labels(histories, broker.PUBLISHED)
    ]


def _consumers(histories: Sequence[History]) -> list[ConsumerRow]:
    """Of the topics of which there was a message."""
    outcomes: dict[str, list[tuple[str, ...]]] = {}
    for labels in _labels(histories, consumer.OUTCOMES):
        outcomes.setdefault(labels[0], []).append(labels)
    rows = [_consumer(histories, topic, its) for topic, its in outcomes.items()]
    return [row for row in rows if row.handled]


def _consumer(histories: Sequence[History], topic: str, outcomes: Sequence[tuple[str, ...]]) -> ConsumerRow:
    buckets: dict[float, float] = {}
    for history in histories:
        for bound, count in history.buckets(consumer.HANDLING, (topic,)):
            buckets[bound] = buckets.get(bound, 0.0) + count
    lately = sorted(buckets.items())
    return ConsumerRow(
        topic=topic,
        handled=round(
            sum(_sum(one.value(consumer.OUTCOMES, labels) for one in histories) or 0.0 for labels in outcomes)
        ),
        outcomes={labels[1]: _sum(one.rate(consumer.OUTCOMES, labels) for one in histories) for labels in outcomes},
        p50=quantile(0.5, lately),
        p99=quantile(0.99, lately),
    )


def _work(histories: Sequence[History]) -> Work | None:
    if not _labels(histories, consumer.IN_HANDS):
        return None
    answers: dict[str, Number] = {}
    for labels in _labels(histories, consumer.ANSWERS):
        kind = "429" if labels[0] == "429" else f"{labels[0][:1]}xx"
        answers[kind] = _sum((answers.get(kind), *(one.rate(consumer.ANSWERS, labels) for one in histories)))
    return Work(
        queue=_sum(one.value(consumer.QUEUE_DEPTH) for one in histories),
        in_hands=_sum(one.value(consumer.IN_HANDS) for one in histories),
        store_retries=_sum(one.rate(consumer.STORE_RETRIES) for one in histories),
        store_errors={
            labels[0]: _sum(one.rate(consumer.STORE_ERRORS, labels) for one in histories)
            for labels in _labels(histories, consumer.STORE_ERRORS)
        },
        answers=answers,
    )


def _desk(histories: Sequence[History]) -> Desk | None:
    """Every desk on one store says the same of it: none is added up."""
    if not _labels(histories, desk.FAILURES):
        return None
    return Desk(
        statuses=_largest(histories, desk.FAILURES),
        reasons={reason: count for reason, count in _largest(histories, desk.DLQ_MESSAGES).items() if count},
        groups=_largest(histories, desk.GROUPS),
        mended=_max(one.value(desk.DLQ_RETRY_SUCCESS_RATE) for one in histories),
        open_groups=_rows(histories, lambda one: one.now.groups if one.now else None, "fingerprint"),
        replays=_rows(histories, lambda one: one.now.replays if one.now else None, "id"),
    )


# Of several processes.


def _labels(histories: Sequence[History], metric: Metric) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(labels for one in histories for labels in one.labels(metric)))


def _largest(histories: Sequence[History], metric: Metric) -> dict[str, float]:
    found = {labels[0]: _max(one.value(metric, labels) for one in histories) for labels in _labels(histories, metric)}
    return {name: value for name, value in found.items() if value is not None}


def _rows(histories: Sequence[History], of: Callable[[History], Rows | None], key: str = "") -> Rows:
    """Of two with the same key, the first."""
    rows = [row for one in histories for row in of(one) or ()]
    return list({row.get(key): row for row in reversed(rows)}.values())[::-1] if key else rows


def _sum(values: Iterable[Number]) -> Number:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max(values: Iterable[Number]) -> Number:
    return max((value for value in values if value is not None), default=None)
