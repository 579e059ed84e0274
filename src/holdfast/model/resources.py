"""Topics and subscriptions as users configure them. Times are whole seconds or fractions of them, as floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DEFAULT_ACK_DEADLINE_SECONDS = 10
DEFAULT_RETENTION_SECONDS = 7 * 24 * 3600
DEFAULT_EXPIRATION_SECONDS = 31 * 24 * 3600
DEFAULT_DELIVERY_ATTEMPTS = 5  # Cloud Pub/Sub's, where max_delivery_attempts is left at 0
DEFAULT_MINIMUM_BACKOFF_SECONDS = 10.0
DEFAULT_MAXIMUM_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """Messages of a topic must fit this schema. `encoding` is JSON or BINARY; revisions bound what is accepted, and
    empty ones mean the oldest and the newest there is."""

    schema: str
    encoding: str = "JSON"
    first_revision: str = ""
    last_revision: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    message_retention_seconds: float | None = None  # None: only as long as a subscription needs them
    schema: SchemaSettings | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Topic:
        parts = dict(value)
        schema = parts.pop("schema", None)
        return cls(schema=SchemaSettings(**schema) if schema else None, **parts)


@dataclass(frozen=True, slots=True)
class OidcToken:
    """A token that says who pushes. An empty audience means the endpoint's own URL."""

    service_account: str
    audience: str = ""


@dataclass(frozen=True, slots=True)
class PushConfig:
    """Wrapped messages are sent as Pub/Sub's JSON; others as their data alone, with the rest in headers if asked."""

    endpoint: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    oidc: OidcToken | None = None
    wrapped: bool = True
    write_metadata: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PushConfig:
        parts = dict(value)
        oidc = parts.pop("oidc", None)
        return cls(oidc=OidcToken(**oidc) if oidc else None, **parts)


@dataclass(frozen=True, slots=True)
class EndpointConsent:
    """A push endpoint agreed to be sent messages. At most per_second of them; 0 means any number."""

    endpoint: str
    per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    topic: str
    max_delivery_attempts: int = DEFAULT_DELIVERY_ATTEMPTS


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    minimum_backoff_seconds: float = DEFAULT_MINIMUM_BACKOFF_SECONDS
    maximum_backoff_seconds: float = DEFAULT_MAXIMUM_BACKOFF_SECONDS


@dataclass(frozen=True, slots=True)
class Subscription:
    name: str
    topic: str
    ack_deadline_seconds: int = DEFAULT_ACK_DEADLINE_SECONDS
    push: PushConfig | None = None
    dead_letter: DeadLetterPolicy | None = None
    retry: RetryPolicy | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    message_retention_seconds: float = DEFAULT_RETENTION_SECONDS
    retain_acked: bool = False
    ordered: bool = False
    exactly_once: bool = False
    filter: str = ""
    expiration_seconds: float | None = DEFAULT_EXPIRATION_SECONDS  # unused for so long, it is deleted; None: never
    detached: bool = False
    consent: EndpointConsent | None = None
    first_sequence: int = field(default=0, compare=False)  # of its topic when it was created; what is lower is not its

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Subscription:
        parts = dict(value)
        push, dead_letter, retry = parts.pop("push"), parts.pop("dead_letter"), parts.pop("retry")
        consent = parts.pop("consent", None)
        return cls(
            push=PushConfig.from_json(push) if push else None,
            dead_letter=DeadLetterPolicy(**dead_letter) if dead_letter else None,
            retry=RetryPolicy(**retry) if retry else None,
            consent=EndpointConsent(**consent) if consent else None,
            **parts,
        )
