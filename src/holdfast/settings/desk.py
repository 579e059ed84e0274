"""The dead-letter desk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.settings.checks import between, subscriptions
from holdfast.settings.setting import Texts, setting


@dataclass(frozen=True, slots=True)
class DeskSettings:
    failures: str = setting(
        "",
        "URL of the desk's store: `memory:`, `sqlite:///file.db` or `postgresql://user@host/database`. Empty: "
        "`sqlite:///<data>/failures.db`.",
    )
    subscriptions: Sequence[str] = setting(
        Texts(),
        "Subscriptions of dead letters that the desk reads besides all whose id ends in `.dlq.desk`, as a list of ids "
        "or full paths (in the environment separated by commas).",
        check=subscriptions,
    )
    retry: Sequence[Mapping[str, Any]] = setting(
        (),
        "What is retried by itself, as `[[desk.retry]]` tables (JSON in the environment): `reason`, `delays`, `class`, "
        "`outcome`. docs/desk.md tells them.",
    )
    retry_jitter: float = setting(
        0.2,
        "Each delay of an automatic retry is longer or shorter by up to this share of it, so that what failed together "
        "does not return together.",
        check=between(0, 1),
    )
    retry_per_second: float = setting(
        100.0, "Automatic retries that are sent in a second, at most.", check=between(0.01, 100_000)
    )
    retry_settle_seconds: float = setting(
        900.0,
        "An automatic retry through a broker that does not tell what became of it, such as Cloud Pub/Sub, has "
        "succeeded when it is not dead-lettered within this time.",
        check=between(1, 7 * 86_400),
    )
    replay_per_second: float = setting(
        50.0,
        "Messages that a replay sends in a second, unless it says otherwise. 0: no bound.",
        check=between(0, 100_000),
    )
    max_generation: int = setting(
        5,
        "A message that was sent again and failed so often is not sent by replays any more.",
        check=between(1, 1000),
    )
    redact: Sequence[str] = setting(
        Texts(),
        "What nobody sees without `reveal_token`, as a list of rules (in the environment separated by commas): "
        "`payload:card.number`, `payload:**.email`, `attribute:token`, `key`. docs/desk.md tells them.",
    )
    reveal_token: str = setting(
        "", "Whoever sends it in the header `Holdfast-Reveal` sees what is redacted. Empty: nobody does."
    )
    keep_retry_success_days: float = setting(
        30.0, "How long the desk keeps what a retry has mended. 0 means for ever.", check=between(0, 36_500)
    )
    keep_replayed_days: float = setting(
        30.0, "How long it keeps what people have sent again. 0 means for ever.", check=between(0, 36_500)
    )
    keep_permanent_failure_days: float = setting(
        2557.0, "How long it keeps what failed for good: 7 years. 0 means for ever.", check=between(0, 36_500)
    )
