"""Push delivery."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import between, url_or_empty
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class PushSettings:
    workers: int = setting(
        0,
        "Subscriptions served at once. A worker reads and sends, and never waits for an answer, so no endpoint can "
        "hold it. 0 means 2 for each core.",
        check=between(0, 1000),
    )
    timeout_seconds: float = setting(
        30.0,
        "Longest wait for an answer; never past the subscription's ack deadline.",
        check=between(0.1, 600),
    )
    max_requests: int = setting(
        256,
        "Requests under way at once over all push subscriptions. One of them takes no more than is left for the "
        "others; each may always have one.",
        check=between(1, 100_000),
    )
    concurrency: int = setting(
        100,
        "Requests under way at once for one push subscription, at most: its window grows up to this while they "
        "succeed. The push attribute `x-holdfast-concurrency` sets it for one subscription.",
        check=between(1, 10_000),
    )
    per_second: float = setting(
        0.0,
        "Requests a second for one push subscription, at most. 0 means no limit. The push attribute "
        "`x-holdfast-per-second` sets it for one subscription.",
        check=between(0, 1_000_000),
    )
    longest_pause_seconds: float = setting(
        0.1,
        "Longest pause between two requests to an endpoint that keeps failing. It starts with 0.1 and doubles up to "
        "this; Cloud Pub/Sub goes up to 60.",
        check=between(0, 600),
    )
    drop_after_attempts: int = setting(
        0,
        "Log and drop a message after so many failed attempts where the subscription has no dead-letter policy. 0 "
        "means never: it is tried until its retention ends, as Cloud Pub/Sub does.",
        check=between(0, 1_000_000),
    )
    confirm_endpoints: bool = setting(
        False,
        "Send nothing to any endpoint before it has agreed, by answering an OPTIONS request. Where this is off, the "
        "push attribute `x-holdfast-confirm` turns it on for one subscription.",
    )
    grace_seconds: float = setting(
        5.0, "How long running requests may take to end when the broker stops.", check=between(0, 600)
    )
    ca_file: str = setting(
        "", "PEM file of certificate authorities that endpoints may be signed by, besides the system's."
    )
    issuer: str = setting(
        "",
        "`iss` of the tokens that push requests carry, and base of the URL of their keys. Empty: the broker's own URL.",
        check=url_or_empty,
    )
    key_days: float = setting(
        30.0,
        "A new key signs the tokens after so many days; the old one stays valid meanwhile.",
        check=between(1, 3650),
    )
