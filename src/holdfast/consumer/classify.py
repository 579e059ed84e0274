"""What an exception means for the message: the one table. Never a success, not even for the unknown."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import BadInput, Misconfigured, Poison, StorageUnavailable, Transient
from holdfast.model.outcome import Poisoned, Retry


class Verdict(NamedTuple):
    outcome: Poisoned | Retry
    classified: bool = True


def classify(error: Exception) -> Verdict:
    """The order of the cases matters where one is a kind of the other: PermissionError is an OSError."""
    text = str(error) or type(error).__name__
    match error:
        case Poison():
            return Verdict(Poisoned(error.reason, text, error.readable))
        case BadInput():  # from a store that was given fields which are not JSON: again cannot help
            return Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", text, readable=True))
        case Misconfigured() | PermissionError():
            return Verdict(Retry(text, misconfigured=True))
        case Transient():
            return Verdict(Retry(text, retry_after=error.retry_after))
        case StorageUnavailable() | TimeoutError() | ConnectionError() | OSError():
            return Verdict(Retry(text))
        case _:
            # Perhaps a bug, perhaps a driver's own word for "not now": tried again until the attempts run
            # out, and then in the dead letters, where someone sees it.
            return Verdict(Retry(text), classified=False)
