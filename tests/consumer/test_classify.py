"""What each exception means for the message."""

from __future__ import annotations

import pytest

from holdfast.consumer.classify import Verdict, classify
from holdfast.errors import BadInput, Misconfigured, NotFound, Poison, StorageUnavailable, Transient
from holdfast.model.outcome import Poisoned, Retry


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Poison("bad", reason="R"), Verdict(Poisoned("R", "bad", readable=True))),
        (Poison("bad", readable=False), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "bad", readable=False))),
        (BadInput("f", "why"), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "f: why", readable=True))),
        (Transient("later", retry_after=3), Verdict(Retry("later", retry_after=3))),
        (Misconfigured("no key"), Verdict(Retry("no key", misconfigured=True))),
        (PermissionError("denied"), Verdict(Retry("denied", misconfigured=True))),
        (StorageUnavailable("down"), Verdict(Retry("down"))),
        (TimeoutError(), Verdict(Retry("TimeoutError"))),
        (ConnectionResetError("gone"), Verdict(Retry("gone"))),
        (OSError("disk"), Verdict(Retry("disk"))),
        (KeyError("x"), Verdict(Retry("'x'"), classified=False)),
        (NotFound("x"), Verdict(Retry("x"), classified=False)),
        (RecursionError(), Verdict(Retry("RecursionError"), classified=False)),
    ],
)
def test_the_table(error: Exception, verdict: Verdict) -> None:
    assert classify(error) == verdict
