"""What an exception means for the message: the one table. Never a success, not even for the unknown."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.consumer.known_exceptions import Known, Meaning, known
from holdfast.errors import WRONG_SHAPE, BadInput, Misconfigured, Poison, StorageUnavailable, Transient
from holdfast.model.failure_reasons import (
    DATABASE_CONNECTION_ERROR,
    MISCONFIGURED,
    TRANSIENT_ERROR,
    UNCLASSIFIED_ERROR,
)
from holdfast.model.outcome import Poisoned, Retry

# The failure reason of what another service refuses for good.
REFUSED = "REFUSED_BY_DEPENDENCY"


class Verdict(NamedTuple):
    outcome: Poisoned | Retry
    classified: bool = True


def classify(error: BaseException) -> Verdict:
    """The order of the cases matters where one is a kind of the other: PermissionError is an OSError."""
    text = _text_of(error)
    match error:
        case Poison():
            return Verdict(Poisoned(_reason_of(error, WRONG_SHAPE), text, error.readable))
        case BadInput():  # from a store that was given fields which are not JSON: again cannot help
            return Verdict(Poisoned(WRONG_SHAPE, text, readable=True))
        case Misconfigured() | PermissionError():
            return Verdict(Retry(text, misconfigured=True, reason=MISCONFIGURED))
        case Transient():
            return Verdict(Retry(text, retry_after=error.retry_after, reason=_reason_of(error, TRANSIENT_ERROR)))
        case StorageUnavailable():
            return Verdict(Retry(text, reason=DATABASE_CONNECTION_ERROR))
    match known(error):
        case Known(Meaning.POISON):
            return Verdict(Poisoned(REFUSED, text, readable=True))
        case Known(Meaning.MISCONFIGURED, reason):
            return Verdict(Retry(text, misconfigured=True, reason=reason))
        case Known(Meaning.TRANSIENT, reason):
            return Verdict(Retry(text, reason=reason))
    if isinstance(error, OSError):  # TimeoutError and ConnectionError are kinds of it
        return Verdict(Retry(text))
    # Perhaps a bug, perhaps a driver's own word for "not now": tried again until the attempts run out, and then in the
    # dead letters, where someone sees it.
    return Verdict(Retry(text, reason=UNCLASSIFIED_ERROR), classified=False)


def _text_of(error: BaseException) -> str:
    """An exception of somebody else may have no text, none that can be had, or one that UTF-8 cannot hold."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - its own failure says nothing about the message
        text = ""
    return _as_utf8(text) or type(error).__name__


def _reason_of(error: Poison | Transient, otherwise: str) -> str:
    given: object = error.reason  # as a handler really gave it
    return _as_utf8(given) if isinstance(given, str) and given.strip() else otherwise


def _as_utf8(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()
