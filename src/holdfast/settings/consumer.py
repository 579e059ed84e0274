"""The consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.settings.checks import between, not_empty, one_of, topic_id, topic_or_empty
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    store: str = setting(
        "",
        "URL of the document store: `memory:`, `sqlite:///file.db`, `postgresql://user@host/database` or "
        "`firestore://project/database`. Empty: `sqlite:///<data>/documents.db`.",
    )
    firestore_database: str = setting(
        "(default)", "Firestore database where the URL names none.", check=not_empty, variable="FIRESTORE_DATABASE"
    )
    env: str = setting("local", "Environment that document ids and dedupe keys carry.", check=not_empty, variable="ENV")
    default_region: str = setting(
        "local", "Region of events that name none.", check=not_empty, variable="DEFAULT_REGION"
    )
    system_events_topic: str = setting(
        "system.events", "Topic of system events.", check=topic_id, variable="SYSTEM_EVENTS_TOPIC"
    )
    subscription_topic_map: Mapping[str, str] = setting(
        {},
        "Topic of messages that do not name it, by subscription (JSON in the environment). "
        "The default topology's own subscriptions are known without it.",
        variable="SUBSCRIPTION_TOPIC_MAP",
    )
    routes: Sequence[Mapping[str, Any]] = setting(
        (),
        "Routes without Python, as `[[consumer.routes]]` tables (JSON in the environment): `topic`, `collection`, "
        "`id`, `fields`, `required`. docs/consumer.md tells them.",
    )
    service_document_id: str = setting(
        "env",
        "Id of `ops_services` documents: `env` is env__service, `env_region` is env__service__region, "
        "`plain` is the service alone.",
        check=one_of("env", "env_region", "plain"),
    )
    max_workers: int = setting(
        8,
        "Store transactions under way at once, and handlers that wait: async, or on threads. "
        "What waits shares a transaction.",
        check=between(1, 1000),
        variable="CONSUMER_MAX_WORKERS",
    )
    queue_size: int = setting(
        64,
        "Messages that may wait for a worker; the next is answered 429.",
        check=between(1, 100_000),
        variable="CONSUMER_QUEUE_SIZE",
    )
    pull_max_messages: int = setting(
        1000,
        "Messages of one pulled subscription that may be in our hands at once: being worked on, waiting, or not acked "
        "yet. The broker sends no more until some are settled.",
        check=between(1, 100_000),
    )
    pull_max_megabytes: int = setting(
        64, "The same, as the size of their payloads. One message more is possible.", check=between(1, 65536)
    )
    max_lease_seconds: float = setting(
        3600.0,
        "How long a pulled message's deadline is extended while it is worked on. Then the broker may send it again.",
        check=between(10, 86_400),
    )
    drain_seconds: float = setting(
        8.0,
        "At a stop: longest wait for pulled messages that are being worked on. What is not done then is given back.",
        check=between(0, 3600),
    )
    retry_max_attempts: int = setting(
        6,
        "Times that a store which is not there is asked, for one message.",
        check=between(1, 1000),
        variable="FIRESTORE_RETRY_MAX_ATTEMPTS",
    )
    retry_initial_backoff_seconds: float = setting(
        0.25,
        "First pause between two of these.",
        check=between(0, 600),
        variable="FIRESTORE_RETRY_INITIAL_BACKOFF_S",
    )
    retry_max_backoff_seconds: float = setting(
        6.0,
        "Longest pause between two of these; each is twice as long as the one before.",
        check=between(0, 600),
        variable="FIRESTORE_RETRY_MAX_BACKOFF_S",
    )
    retry_max_total_seconds: float = setting(
        8.0,
        "Time after which no further one is begun: the broker sends the message again.",
        check=between(0, 600),
        variable="FIRESTORE_RETRY_MAX_TOTAL_S",
    )
    dead_letter_policy: str = setting(
        "auto",
        "Whether subscriptions dead-letter what fails: `always`, `never`, or `auto`: those whose deliveries tell their "
        "attempt. Poison from others is recorded as a failed message, then acked.",
        check=one_of("auto", "always", "never"),
    )
    dlq_topic: str = setting(
        "",
        "Topic, by id or full path, for failed messages that the subscription does not dead-letter, and for those that "
        "the store refuses for good. Empty: the first go to `desk.failures`, the others are sent again.",
        check=topic_or_empty,
        variable="DLQ_TOPIC",
    )
    dlq_publish_deadline_seconds: float = setting(
        10.0,
        "Longest wait for that topic to have it. Without its word the message is not acked.",
        check=between(0.1, 600),
        variable="DLQ_PUBLISH_DEADLINE_S",
    )
    future_seconds: float = setting(
        300.0,
        "An event whose time is further ahead of our clock is flagged in the log: it wins over all that come after it.",
        check=between(0, 10**9),
    )
    refuse_future: bool = setting(False, "Treat such an event as poison.")
    service: str = setting("holdfast", "Name of this service in its log.", check=not_empty, variable="K_SERVICE")
    version: str = setting("", "Version in its log. Empty: Holdfast's own.", variable="K_REVISION")
    sha: str = setting("", "Commit in its log. Empty: none.", variable="GIT_SHA")
    dedupe_days: float = setting(
        7.0,
        "How long a message id or event id is remembered; Pub/Sub redelivers for 7 days.",
        check=between(0.001, 365),
    )
