"""What metrics say minute by minute, and when each rule fires by that. Written once: promtool and our own evaluator are
both held to these minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.settings import AlertSettings, Texts

# One value a minute. None: it is not reported.
Values = Sequence[float | None]


@dataclass(frozen=True)
class Timeline:
    """`fires` are the minutes, the first and the last, in which the rule fires, for `labels` and nothing else. `series`
    begin at minute 0 and say the same as at their end from then on."""

    rule: str
    what: str
    series: Mapping[str, Values]
    fires: Sequence[tuple[int, int]] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: AlertSettings = field(default_factory=AlertSettings)

    @property
    def minutes(self) -> int:
        return max(map(len, self.series.values()))

    def firing_at(self, minute: int) -> bool:
        return any(first <= minute <= last for first, last in self.fires)

    def at(self, minute: int) -> dict[str, float | None]:
        return {name: values[min(minute, len(values) - 1)] for name, values in self.series.items()}


def flat(value: float, minutes: int) -> list[float | None]:
    return [value] * minutes


def rising(first: float, minutes: int, by: float = 1) -> list[float | None]:
    return [first + by * minute for minute in range(minutes)]


def absent(minutes: int) -> list[float | None]:
    return [None] * minutes


def steps(minutes: int, *at: int) -> list[float | None]:
    """From 0, one more at each of these minutes."""
    return [float(sum(step <= minute for step in at)) for minute in range(minutes)]


PATH = "projects/local/subscriptions/orders.worker"
OTHER = "projects/local/subscriptions/mail.worker"
SUBSCRIPTION = f'{{subscription="{PATH}"}}'
OF_SUBSCRIPTION = {"subscription": PATH}

OPEN = f"holdfast_desk_open_failures{SUBSCRIPTION}"
RECORDED = f"holdfast_desk_recorded_total{SUBSCRIPTION}"
SETTLED = f"holdfast_desk_settled_total{SUBSCRIPTION}"
PERMANENT = "dlq_permanent_failures_total"
OLDEST = f"holdfast_broker_oldest_unacked_seconds{SUBSCRIPTION}"
BACKLOG = f"holdfast_broker_backlog{SUBSCRIPTION}"
PAUSED = f"holdfast_broker_paused{SUBSCRIPTION}"
DROPPED = f"holdfast_push_dropped_total{SUBSCRIPTION}"
REFUSED = 'holdfast_alerts_notifications_total{receiver="slack",result="refused"}'
UNTOLD = 'holdfast_alerts_notifications_waiting{receiver="slack"}'
RATE = "dlq_retry_success_rate"


def answers(status: int) -> str:
    return f'holdfast_consumer_answers_total{{status="{status}"}}'


def failures(status: str) -> str:
    return f'holdfast_desk_failures{{status="{status}"}}'


def errors(kind: str) -> str:
    return f'holdfast_consumer_store_errors_total{{kind="{kind}"}}'


def outcomes(outcome: str) -> str:
    return f'holdfast_consumer_outcomes_total{{topic="orders",outcome="{outcome}"}}'


def attempts(result: str) -> str:
    return f'holdfast_push_attempts_total{{subscription="{PATH}",result="{result}"}}'


DEAD_LETTERS = [
    Timeline(
        "DeadLettersWait",
        "failures that wait",
        {OPEN: flat(0, 5) + flat(2, 12) + flat(0, 5)},
        [(10, 16)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersWait",
        "failures that are seen to within five minutes",
        {OPEN: flat(0, 5) + flat(2, 5) + flat(0, 5) + flat(1, 5) + flat(0, 5)},
    ),
    Timeline(
        "DeadLettersWait",
        "a subscription that goes, and what failed there with it",
        {OPEN: flat(2, 8) + absent(8)},
        [(5, 7)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersWait",
        "only critical subscriptions",
        {OPEN: flat(2, 9) + flat(0, 5), f'holdfast_desk_open_failures{{subscription="{OTHER}"}}': flat(2, 14)},
        [(5, 8)],
        OF_SUBSCRIPTION,
        AlertSettings(critical_subscriptions=Texts(["orders.worker"])),
    ),
    Timeline(
        "DeadLettersStay",
        "failures that stay",
        {OPEN: flat(0, 5) + flat(2, 20) + flat(0, 5)},
        [(20, 24)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersBurst",
        "eleven at once",
        {RECORDED: flat(3, 15) + flat(14, 15)},
        [(15, 24)],
        OF_SUBSCRIPTION,
    ),
    Timeline("DeadLettersBurst", "ten at once", {RECORDED: flat(3, 15) + flat(13, 15)}),
    Timeline("DeadLettersBurst", "one a minute, ten within the window", {RECORDED: rising(0, 40)}),
    Timeline(
        "DeadLettersBurst",
        "the first that ever failed there",
        {RECORDED: absent(15) + flat(11, 15)},
        [(15, 24)],
        OF_SUBSCRIPTION,
    ),
    Timeline("DeadLettersBurst", "a process that has a past when it is first seen", {RECORDED: flat(5000, 30)}),
    Timeline(
        "DeadLettersBurst",
        "a counter that starts anew",
        {RECORDED: [*flat(8, 15), 14, 0, *flat(6, 13)]},
        [(17, 24)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersGrow",
        "more fail than are mended",
        {RECORDED: flat(0, 15) + rising(2, 36, 2) + flat(72, 15), SETTLED: flat(0, 15) + rising(1, 36) + flat(36, 15)},
        [(45, 59)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersGrow",
        "none was ever mended, until all are",
        {RECORDED: flat(0, 15) + rising(1, 33) + flat(33, 7), SETTLED: absent(30) + flat(0, 18) + flat(33, 7)},
        [(45, 47)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeadLettersGrow",
        "as many are mended as fail",
        {RECORDED: flat(0, 15) + rising(1, 45), SETTLED: flat(0, 15) + rising(1, 45)},
    ),
    Timeline("DeadLettersGrow", "a burst that nobody has mended", {RECORDED: flat(0, 15) + flat(500, 45)}),
    Timeline("PermanentFailure", "one more", {PERMANENT: flat(3, 15) + flat(4, 15)}, [(15, 19)]),
    Timeline("PermanentFailure", "old ones", {PERMANENT: flat(7, 30)}),
    Timeline(
        "ReviewQueueLong",
        "fifty",
        {failures("permanent_failure"): flat(49, 5) + flat(50, 20) + flat(49, 5), failures("replayed"): flat(99, 30)},
        [(20, 24)],
    ),
    Timeline(
        "RetryQueueLong",
        "a hundred",
        {failures("queued_for_retry"): flat(99, 5) + flat(100, 20) + flat(99, 5)},
        [(20, 24)],
    ),
    Timeline("RetriesFail", "few are mended", {RATE: flat(0.96, 5) + flat(0.94, 40) + flat(0.96, 5)}, [(35, 44)]),
    Timeline("RetriesFail", "just enough are mended", {RATE: flat(0.95, 50)}),
]

ANSWERS = [
    Timeline(
        "ServerErrors",
        "three in a hundred",
        {answers(200): rising(0, 30, 97), answers(500): flat(0, 5) + rising(3, 16, 3) + flat(48, 9)},
        [(10, 21)],
    ),
    Timeline(
        "ServerErrors",
        "three in a hundred, beside a flood of 429",
        {
            answers(200): rising(0, 30, 97),
            answers(429): rising(0, 30, 9000),
            answers(503): flat(0, 5) + rising(3, 16, 3) + flat(48, 9),
        },
        [(10, 21)],
    ),
    Timeline(
        "ServerErrors",
        "half of very few",
        {answers(200): rising(0, 30, 4), answers(500): flat(0, 5) + rising(4, 25, 4)},
    ),
    Timeline(
        "ServerErrors", "a minute of trouble", {answers(200): rising(0, 30, 97), answers(500): steps(30, 5, 5, 5)}
    ),
    Timeline(
        "ServerErrorsHigh",
        "twenty in a hundred",
        {answers(200): rising(0, 30, 80), answers(500): flat(0, 5) + rising(20, 16, 20) + flat(320, 9)},
        [(10, 21)],
    ),
    Timeline(
        "ServerErrorsHigh",
        "three in a hundred",
        {answers(200): rising(0, 30, 97), answers(500): flat(0, 5) + rising(3, 25, 3)},
    ),
    Timeline(
        "ServerErrorsLast",
        "one every four minutes, and hardly anything else",
        {answers(200): rising(0, 50), answers(500): steps(50, 15, 19, 23, 27, 31, 35)},
        [(30, 39)],
    ),
    Timeline("ServerErrorsLast", "one every six minutes", {answers(500): steps(60, *range(15, 60, 6))}),
    Timeline("ServerErrorsLast", "429 all the time", {answers(429): rising(0, 60, 100)}),
    Timeline(
        "ClientErrors",
        "eight in a thousand",
        {answers(200): rising(0, 50, 992), answers(422): flat(0, 15) + rising(8, 26, 8) + flat(208, 9)},
        [(25, 44)],
    ),
    Timeline("ClientErrors", "429 all the time", {answers(200): rising(0, 40, 10), answers(429): rising(0, 40, 90)}),
    Timeline("ClientErrors", "one bad request", {answers(200): rising(0, 40, 10), answers(400): steps(40, 15)}),
    Timeline(
        "ClientErrorsHigh",
        "a hundred in a thousand",
        {answers(200): rising(0, 50, 900), answers(400): flat(0, 15) + rising(100, 26, 100) + flat(2600, 9)},
        [(25, 44)],
    ),
    Timeline(
        "ClientErrorsHigh",
        "eight in a thousand",
        {answers(200): rising(0, 50, 992), answers(422): flat(0, 15) + rising(8, 35, 8)},
    ),
]

WORK = [
    Timeline(
        "OldestUnacked",
        "one that nobody takes",
        {OLDEST: flat(0, 5) + rising(60, 10, 60) + flat(0, 5)},
        [(10, 14)],
        OF_SUBSCRIPTION,
    ),
    Timeline("OldestUnacked", "five minutes, and no more", {OLDEST: flat(0, 5) + rising(60, 5, 60) + flat(300, 9)}),
    Timeline(
        "OldestUnackedHigh",
        "one that nobody takes",
        {OLDEST: flat(0, 5) + rising(60, 20, 60) + flat(0, 5)},
        [(20, 24)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "BacklogGrows",
        "more comes than goes",
        {BACKLOG: flat(10, 10) + rising(11, 25) + flat(35, 10)},
        [(25, 38)],
        OF_SUBSCRIPTION,
    ),
    Timeline("BacklogGrows", "much, but it shrinks", {BACKLOG: flat(10, 10) + flat(900, 1) + rising(899, 30, -1)}),
    Timeline("BacklogGrows", "up and down", {BACKLOG: [5.0, 9.0, 7.0, 4.0] * 12}),
    Timeline(
        "BacklogGrowsOn",
        "more comes than goes",
        {BACKLOG: flat(10, 10) + rising(11, 40) + flat(50, 10)},
        [(40, 53)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeliveryPaused",
        "a pause",
        {PAUSED: flat(0, 5) + flat(1, 10) + flat(0, 5)},
        [(5, 14)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "DeliveryPaused",
        "a short pause, at once",
        {PAUSED: flat(0, 5) + flat(1, 1) + flat(0, 5)},
        [(5, 5)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "PushEndpointFails",
        "an endpoint that is away",
        {
            attempts("acknowledged"): rising(0, 15, 10) + flat(140, 25) + rising(150, 10, 10),
            attempts("timeout"): flat(0, 15) + rising(2, 25, 2) + flat(50, 10),
        },
        [(29, 39)],
        OF_SUBSCRIPTION,
    ),
    Timeline(
        "PushEndpointFails",
        "few attempts, and a single one in five minutes",
        {attempts("acknowledged"): flat(3, 40), attempts("timeout"): steps(40, *range(5, 40, 5))},
    ),
    Timeline("PushDropped", "one", {DROPPED: flat(0, 15) + flat(1, 15)}, [(15, 19)], OF_SUBSCRIPTION),
]

STORE = [
    Timeline(
        "StoreErrors",
        "six a minute",
        {errors("transient"): flat(0, 15) + rising(6, 26, 6) + flat(156, 9)},
        [(29, 40)],
    ),
    Timeline(
        "StoreErrors",
        "exactly five a minute",
        {errors("transient"): flat(0, 15) + rising(5, 26, 5) + flat(130, 9)},
        [(29, 40)],
    ),
    Timeline("StoreErrors", "four a minute", {errors("transient"): rising(0, 40, 4)}),
    Timeline("StoreErrors", "a thousand at once", {errors("transient"): flat(0, 15) + flat(1000, 25)}),
    Timeline(
        "StoreErrorsHigh",
        "twenty-four a minute",
        {errors("transient"): flat(0, 15) + rising(24, 26, 24) + flat(624, 9)},
        [(29, 40)],
    ),
    Timeline("StoreErrorsHigh", "six a minute", {errors("transient"): rising(0, 40, 6)}),
    Timeline("StorePermission", "one", {errors("permission"): flat(0, 15) + flat(1, 15)}, [(15, 19)]),
    Timeline("StorePermission", "the first", {errors("permission"): absent(10) + flat(1, 15)}, [(10, 14)]),
    Timeline("StorePermission", "other trouble", {errors("transient"): rising(0, 30), errors("other"): rising(0, 30)}),
    Timeline(
        "StaleSpike",
        "twenty in a hundred",
        {
            outcomes("applied"): rising(0, 50, 80),
            outcomes("stale_ignored"): flat(0, 15) + rising(20, 26, 20) + flat(520, 9),
        },
        [(27, 42)],
        {"topic": "orders"},
    ),
    Timeline(
        "StaleSpike",
        "two in a hundred",
        {outcomes("applied"): rising(0, 40, 98), outcomes("stale_ignored"): rising(0, 40, 2)},
    ),
    Timeline(
        "NotificationsRefused",
        "one",
        {REFUSED: flat(0, 20) + flat(1, 25), REFUSED.replace("refused", "sent"): rising(0, 45)},
        [(20, 34)],
        {"receiver": "slack"},
    ),
    Timeline(
        "NotificationsWait",
        "a receiver that is away",
        {UNTOLD: flat(0, 5) + flat(3, 20) + flat(0, 5)},
        [(20, 24)],
        {"receiver": "slack"},
    ),
    Timeline("NotificationsWait", "short trouble", {UNTOLD: (flat(1, 14) + flat(0, 1)) * 3}),
]

TUNED = [
    Timeline(
        "OldestUnacked",
        "another limit, for longer",
        {OLDEST: flat(0, 5) + rising(60, 15, 60) + flat(0, 5)},
        [(15, 19)],
        OF_SUBSCRIPTION,
        AlertSettings(rules=({"rule": "OldestUnacked", "threshold": 420, "for": "3m", "severity": "critical"},)),
    ),
    Timeline(
        "OldestUnacked",
        "other subscriptions",
        {OLDEST: flat(0, 5) + flat(999, 9)},
        settings=AlertSettings(rules=({"rule": "OldestUnacked", "subscriptions": ["mail.worker"]},)),
    ),
    Timeline(
        "AllAcks",
        "a rule of one's own, of several series",
        {
            f"holdfast_broker_acked_total{SUBSCRIPTION}": flat(0, 15) + rising(2, 15, 2),
            f'holdfast_broker_acked_total{{subscription="{OTHER}"}}': flat(0, 15) + rising(2, 15, 2),
        },
        [(18, 29)],
        settings=AlertSettings(
            rules=(
                {
                    "rule": "AllAcks",
                    "measure": "increase",
                    "of": "holdfast_broker_acked_total",
                    "by": [],
                    "per_minute": True,
                    "window": "5m",
                    "threshold": 2.5,
                },
            )
        ),
    ),
    Timeline(
        "DeepQueue",
        "a rule of one's own, of a gauge without labels",
        {"holdfast_consumer_queue_depth": flat(0, 3) + flat(9, 5) + flat(8, 3)},
        [(5, 7)],
        settings=AlertSettings(
            rules=(
                {
                    "rule": "DeepQueue",
                    "measure": "level",
                    "of": "holdfast_consumer_queue_depth",
                    "threshold": 9,
                    "compare": ">=",
                    "for": 120,
                },
            )
        ),
    ),
]

TIMELINES = [*DEAD_LETTERS, *ANSWERS, *WORK, *STORE, *TUNED]
