"""How handling one delivery can end. The set is closed: an unknown outcome is an error, never a success."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.failure_reasons import TRANSIENT_ERROR


@dataclass(frozen=True, slots=True)
class Applied:
    """The documents are durable."""

    documents: tuple[str, ...]
    name = "applied"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The effect was already there; nothing changed. `key` is the dedupe key, or the document, that showed it."""

    key: str
    name = "duplicate"


@dataclass(frozen=True, slots=True)
class Stale:
    """A newer event was already applied to the document; nothing changed."""

    document: str
    name = "stale_ignored"


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Will never succeed as it is. `readable` is False when the message could not even be parsed; `by_store` means
    that the document store refused it."""

    reason: str
    error: str
    readable: bool
    by_store: bool = False
    name = "poison"


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing changed; the same message may succeed later. `misconfigured` means not before an operator acts, and
    `by_store` that it is the document store which needs that. `overloaded` means it was turned away unread. `reason` is
    what the desk groups by, should the attempts run out."""

    error: str
    retry_after: float | None = None
    misconfigured: bool = False
    overloaded: bool = False
    by_store: bool = False
    reason: str = TRANSIENT_ERROR
    name = "retry"


Outcome = Applied | Duplicate | Stale | Poisoned | Retry
