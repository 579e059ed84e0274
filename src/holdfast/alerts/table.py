"""The table: every rule there is, unless the user's settings say otherwise. docs/alerts.md is made from it, and so are
the files in deploy/alerts/ (tests compare them).

Where a condition must hold for a time, it is measured over a window shorter than that time: else a single burst would
be in the window all along.
"""

from __future__ import annotations

from holdfast.alerts.alert import Severity
from holdfast.alerts.rule import Comparison, Excess, Growth, Increase, Level, Rule, Share
from holdfast.alerts.selector import Selector
from holdfast.metrics import alerts, broker, consumer, desk, push
from holdfast.metrics.metric import Metric

WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL

MINUTE = 60
_SUBSCRIPTION = ("subscription",)

# Of fewer requests a share says little: one in ten is 10 %.
ENOUGH_REQUESTS = 20
# An endpoint that fails gets few requests.
ENOUGH_ATTEMPTS = 5


def _all(metric: Metric) -> Selector:
    return Selector(metric.name)


def _some(metric: Metric, labels: str) -> Selector:
    return Selector.parse(f"{metric.name}{{{labels}}}")


# 429 says "not now, too many at once". It is the consumer's way to slow a broker down and tells nothing of the message
# nor of trouble: it is neither an error of the server nor one of the client, and it does not make their share smaller.
ANSWERS = _some(consumer.ANSWERS, 'status!="429"')
SERVER_ERRORS = _some(consumer.ANSWERS, 'status=~"5.."')
CLIENT_ERRORS = _some(consumer.ANSWERS, 'status=~"4..",status!="429"')

# What shows more of it.
GROUPS_OF_IT = "holdfast failures groups --state open --subscription {subscription}"
OPEN_GROUPS = "holdfast failures groups --state open"
PUSH_STATUS = "holdfast push status"
PUSH_STATUS_OF_IT = "holdfast push status {subscription}"
SHOW_IT = "holdfast subscriptions show {subscription}"
READ_STORE = "holdfast docs list"

RULES: tuple[Rule, ...] = (
    # Dead letters.
    Rule(
        "DeadLettersWait",
        WARNING,
        Level(_all(desk.OPEN)),
        0,
        "Failed messages of {subscription} have been in nobody's hands for {for}",
        "dead-letters-wait",
        for_seconds=5 * MINUTE,
        by=_SUBSCRIPTION,
        critical_only=True,
        command=GROUPS_OF_IT,
    ),
    Rule(
        "DeadLettersStay",
        CRITICAL,
        Level(_all(desk.OPEN)),
        0,
        "Failed messages of {subscription} have been in nobody's hands for {for}",
        "dead-letters-wait",
        for_seconds=15 * MINUTE,
        by=_SUBSCRIPTION,
        critical_only=True,
        command=GROUPS_OF_IT,
    ),
    Rule(
        "DeadLettersBurst",
        CRITICAL,
        Increase(_all(desk.RECORDED), 10 * MINUTE),
        10,
        "More than {limit} messages of {subscription} failed within {window}",
        "dead-letters-burst",
        by=_SUBSCRIPTION,
        critical_only=True,
        command=GROUPS_OF_IT,
    ),
    Rule(
        "DeadLettersGrow",
        CRITICAL,
        Excess(_all(desk.RECORDED), _all(desk.SETTLED), 10 * MINUTE),
        0,
        "More messages of {subscription} fail than are mended, for {for} now",
        "dead-letters-grow",
        for_seconds=30 * MINUTE,
        by=_SUBSCRIPTION,
        command=GROUPS_OF_IT,
    ),
    Rule(
        "PermanentFailure",
        CRITICAL,
        Increase(_all(desk.DLQ_PERMANENT_FAILURES), 5 * MINUTE),
        0,
        "A failed message has become a permanent failure: a person must see to it",
        "permanent-failure",
        command="holdfast failures list --status permanent_failure --limit 10",
    ),
    Rule(
        "ReviewQueueLong",
        WARNING,
        Level(_some(desk.FAILURES, 'status="permanent_failure"')),
        50,
        "{limit} permanent failures or more wait for a person",
        "many-permanent-failures",
        comparison=Comparison.AT_LEAST,
        for_seconds=15 * MINUTE,
        command=OPEN_GROUPS,
    ),
    Rule(
        "RetryQueueLong",
        WARNING,
        Level(_some(desk.FAILURES, 'status="queued_for_retry"')),
        100,
        "{limit} failed messages or more wait for a retry",
        "the-retry-queue-grows",
        comparison=Comparison.AT_LEAST,
        for_seconds=15 * MINUTE,
        command="holdfast failures list --status queued_for_retry",
    ),
    Rule(
        "RetriesFail",
        WARNING,
        Level(_all(desk.DLQ_RETRY_SUCCESS_RATE)),
        0.95,
        "Of the failed messages of the last 7 days, retries have mended less than {limit}",
        "retries-fail",
        comparison=Comparison.BELOW,
        for_seconds=30 * MINUTE,
        command="holdfast failures stats --since 7d",
    ),
    # Answers of the push endpoint.
    Rule(
        "ServerErrors",
        WARNING,
        Share(SERVER_ERRORS, ANSWERS, 2 * MINUTE, ENOUGH_REQUESTS),
        0.01,
        "More than {limit} of push requests have been answered with 5xx for {for}",
        "server-errors",
        for_seconds=5 * MINUTE,
        command=PUSH_STATUS,
    ),
    Rule(
        "ServerErrorsHigh",
        CRITICAL,
        Share(SERVER_ERRORS, ANSWERS, 2 * MINUTE, ENOUGH_REQUESTS),
        0.05,
        "More than {limit} of push requests have been answered with 5xx for {for}",
        "server-errors",
        for_seconds=5 * MINUTE,
        command=PUSH_STATUS,
    ),
    # However few: hence no share.
    Rule(
        "ServerErrorsLast",
        CRITICAL,
        Increase(SERVER_ERRORS, 5 * MINUTE),
        0,
        "Push requests have been answered with 5xx again and again for {for}",
        "server-errors",
        for_seconds=15 * MINUTE,
        command=PUSH_STATUS,
    ),
    Rule(
        "ClientErrors",
        WARNING,
        Share(CLIENT_ERRORS, ANSWERS, 5 * MINUTE, ENOUGH_REQUESTS),
        0.001,
        "More than {limit} of push requests have been answered with 4xx for {for}",
        "client-errors",
        for_seconds=10 * MINUTE,
        command=OPEN_GROUPS,
    ),
    Rule(
        "ClientErrorsHigh",
        CRITICAL,
        Share(CLIENT_ERRORS, ANSWERS, 5 * MINUTE, ENOUGH_REQUESTS),
        0.01,
        "More than {limit} of push requests have been answered with 4xx for {for}",
        "client-errors",
        for_seconds=10 * MINUTE,
        command=OPEN_GROUPS,
    ),
    # Work that is not done.
    Rule(
        "OldestUnacked",
        WARNING,
        Level(_all(broker.OLDEST_UNACKED)),
        5 * MINUTE,
        "The oldest message of {subscription} has not been acked for more than {limit}",
        "oldest-unacked",
        by=_SUBSCRIPTION,
        command=SHOW_IT,
    ),
    Rule(
        "OldestUnackedHigh",
        CRITICAL,
        Level(_all(broker.OLDEST_UNACKED)),
        15 * MINUTE,
        "The oldest message of {subscription} has not been acked for more than {limit}",
        "oldest-unacked",
        by=_SUBSCRIPTION,
        command=SHOW_IT,
    ),
    Rule(
        "BacklogGrows",
        WARNING,
        Growth(_all(broker.BACKLOG), 5 * MINUTE),
        0,
        "The backlog of {subscription} has been growing for {for}",
        "backlog-grows",
        for_seconds=15 * MINUTE,
        by=_SUBSCRIPTION,
        command=SHOW_IT,
    ),
    Rule(
        "BacklogGrowsOn",
        CRITICAL,
        Growth(_all(broker.BACKLOG), 5 * MINUTE),
        0,
        "The backlog of {subscription} has been growing for {for}",
        "backlog-grows",
        for_seconds=30 * MINUTE,
        by=_SUBSCRIPTION,
        command=SHOW_IT,
    ),
    Rule(
        "DeliveryPaused",
        WARNING,
        Level(_all(broker.PAUSED)),
        0,
        "Delivery to {subscription} has paused, because it failed in a storm",
        "delivery-paused",
        by=_SUBSCRIPTION,
        command=PUSH_STATUS_OF_IT,
    ),
    Rule(
        "PushEndpointFails",
        WARNING,
        Share(_some(push.ATTEMPTS, 'result!="acknowledged"'), _all(push.ATTEMPTS), 5 * MINUTE, ENOUGH_ATTEMPTS),
        0.5,
        "More than {limit} of the push requests of {subscription} have failed for {for}",
        "push-endpoint-fails",
        for_seconds=10 * MINUTE,
        by=_SUBSCRIPTION,
        command=PUSH_STATUS_OF_IT,
    ),
    Rule(
        "PushDropped",
        CRITICAL,
        Increase(_all(push.DROPPED), 5 * MINUTE),
        0,
        "Messages of {subscription} were given up for good, as broker.push.drop_after_attempts asks",
        "push-dropped",
        by=_SUBSCRIPTION,
        command=PUSH_STATUS_OF_IT,
    ),
    # The store, and what handlers call.
    Rule(
        "StoreErrors",
        WARNING,
        Increase(_some(consumer.STORE_ERRORS, 'kind="transient"'), 5 * MINUTE, per_minute=True),
        5,
        "The store has been too busy or away {limit} times a minute or more, for {for}",
        "store-errors",
        comparison=Comparison.AT_LEAST,
        for_seconds=10 * MINUTE,
        command=READ_STORE,
    ),
    Rule(
        "StoreErrorsHigh",
        CRITICAL,
        Increase(_some(consumer.STORE_ERRORS, 'kind="transient"'), 5 * MINUTE, per_minute=True),
        20,
        "The store has been too busy or away {limit} times a minute or more, for {for}",
        "store-errors",
        comparison=Comparison.AT_LEAST,
        for_seconds=10 * MINUTE,
        command=READ_STORE,
    ),
    Rule(
        "StorePermission",
        CRITICAL,
        Increase(_some(consumer.STORE_ERRORS, 'kind="permission"'), 5 * MINUTE),
        0,
        "The store refuses the consumer for want of rights: it will not mend itself",
        "store-permission",
        command=READ_STORE,
    ),
    Rule(
        "StaleSpike",
        WARNING,
        Share(
            _some(consumer.OUTCOMES, 'outcome="stale_ignored"'),
            _all(consumer.OUTCOMES),
            5 * MINUTE,
            ENOUGH_REQUESTS,
        ),
        0.1,
        "More than {limit} of the messages of {topic} have come too late to count, for {for}",
        "stale-spike",
        for_seconds=10 * MINUTE,
        by=("topic",),
        command="holdfast tail {topic}",
    ),
    # The alerts themselves.
    Rule(
        "NotificationsRefused",
        WARNING,
        Increase(_some(alerts.NOTIFICATIONS, 'result="refused"'), 15 * MINUTE),
        0,
        "{receiver} refuses notifications: nobody hears of alerts there",
        "notifications-refused",
        by=("receiver",),
        command="holdfast alerts test {receiver}",
    ),
    Rule(
        "NotificationsWait",
        WARNING,
        Level(_all(alerts.WAITING)),
        0,
        "{receiver} could not be told of alerts for {for}",
        "notifications-wait",
        for_seconds=15 * MINUTE,
        by=("receiver",),
        command="holdfast alerts receivers",
    ),
)
