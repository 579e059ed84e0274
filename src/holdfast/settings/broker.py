"""The broker."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import PORT, between, one_of
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    host: str = setting(
        "127.0.0.1", "Address the broker listens on. Loopback: other machines need a deliberate choice."
    )
    port: int = setting(
        8085, "Port of the Pub/Sub API, the one Google's emulator uses. 0 takes a free one.", check=PORT
    )
    grpc_port: int = setting(
        0,
        "A second port, for gRPC alone, where REST must not be reached. 0 means none.",
        check=PORT,
    )
    strict: bool = setting(
        False,
        "Behave exactly as Cloud Pub/Sub: a push consumer's `Holdfast-Dead-Letter: now` and `Retry-After` are ignored, "
        "`x-holdfast-…` push attributes are refused and dead letters carry only the documented attributes.",
    )
    cache_megabytes: int = setting(
        64,
        "Newest messages kept in memory over all topics; older ones are read from disk.",
        check=between(1, 65536),
    )
    breaker_share: float = setting(
        0.5,
        "Delivery of a subscription pauses when so large a share of its messages fail within a minute, for reasons "
        "that are not the messages'. 0 never pauses; the label `holdfast-breaker: off` of a subscription says so for "
        "that one. Off with `strict`.",
        check=between(0, 1),
    )
    breaker_minimum: int = setting(
        20,
        "So many messages must have been acked or have failed in that minute before it pauses.",
        check=between(1, 1_000_000),
    )
    breaker_seconds: float = setting(
        5.0,
        "The first pause. Then one message is tried: if it fails, the pause doubles, and if it is acked, all go on.",
        check=between(0.1, 3600),
    )
    breaker_longest_seconds: float = setting(600.0, "The longest pause.", check=between(0.1, 86_400))
    ordered_dead_letters: str = setting(
        "pass",
        "When a message with an ordering key is dead-lettered: `pass` lets the next of its key go, as Cloud Pub/Sub "
        "does; `hold` has them wait until it is replayed or released. The label `holdfast-ordered-dead-letters` of a "
        "subscription says it for that one.",
        check=one_of("pass", "hold"),
    )
    replay_memory_hours: float = setting(
        24.0,
        "How long a message that was sent to one subscription alone is remembered: under its replay id it is not sent "
        "again, and what became of it is told. One that is not settled is remembered for longer.",
        check=between(1, 744),
    )
    history_days: float = setting(
        7.0,
        "How long the past of messages is kept for `holdfast trace`: each failed attempt, what was dead-lettered and "
        "sent again as what, and when messages were published and settled. 0 keeps nothing.",
        check=between(0, 3650),
    )
