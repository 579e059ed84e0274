"""What an error of a store, or of what a handler calls, asks of people: to wait, to act, or to look at it."""

from __future__ import annotations

from holdfast.consumer.classify import REFUSED, Verdict, classify
from holdfast.model.outcome import Poisoned

TRANSIENT = "transient"
PERMISSION = "permission"
OTHER = "other"
KINDS = (TRANSIENT, PERMISSION, OTHER)


def kind_of_store_error(error: BaseException) -> str:
    return kind_of(classify(error)) or OTHER


def kind_of(verdict: Verdict) -> str:
    """ "" where it is about the message alone."""
    outcome = verdict.outcome
    if isinstance(outcome, Poisoned):
        return OTHER if outcome.reason == REFUSED else ""
    if outcome.misconfigured:
        return PERMISSION
    return TRANSIENT if verdict.classified else OTHER
