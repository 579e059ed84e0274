"""Every error Holdfast raises on purpose, in one tree. Wire codes are mapped once per transport, in api/.

HoldfastError
├── BadInput             the caller sent something wrong; names the field
│   └── StaleAckIds      exactly-once: these ack ids do not name current deliveries any more
├── NotFound             the named thing does not exist
├── AlreadyExists        the named thing exists already
├── FailedPrecondition   right request, wrong state
├── Conflict             somebody else changed it meanwhile, or it is not what the caller expects
├── PermissionDenied     the caller has no right to it
├── Unsupported          documented elsewhere, not offered here; names the field
├── StorageUnavailable   the store could not do it now; nothing was changed
├── Unreachable          another service gave no answer, or none that helps
├── StartupError         a part cannot start; the text says what to do
│   ├── SettingError     a setting is unknown or has a bad value
│   ├── PortTaken        another process listens there
│   ├── DataDirectoryError   missing rights, or held by another process
│   ├── NewerData        written by a newer Holdfast
│   └── CorruptData      not a database, or a damaged one
└── HandlingFailure      what a consumer's handler may raise
    ├── Poison           will never succeed without a change of code or data
    ├── Transient        is likely to succeed later
    └── Misconfigured    will not succeed until an operator acts
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# The failure reason of what could be read, and is not what it should be.
WRONG_SHAPE = "SCHEMA_VALIDATION_ERROR"


class HoldfastError(Exception):
    """The root: catch this to catch everything Holdfast raises on purpose."""


class BadInput(HoldfastError):
    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


class StaleAckIds(BadInput):
    def __init__(self, ack_ids: Sequence[str]) -> None:
        super().__init__("ack_ids", "some do not name a current delivery any more; the error details list them")
        self.ack_ids = list(ack_ids)


class NotFound(HoldfastError):
    pass


class AlreadyExists(HoldfastError):
    pass


class FailedPrecondition(HoldfastError):
    pass


class Conflict(HoldfastError):
    pass


class PermissionDenied(HoldfastError):
    pass


class Unsupported(HoldfastError):
    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class StorageUnavailable(HoldfastError):
    pass


class Unreachable(HoldfastError):
    pass


class StartupError(HoldfastError):
    """Printed as one line, without a traceback; the process ends with a code other than 0."""


class SettingError(StartupError):
    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"setting {key} = {value!r}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class PortTaken(StartupError):
    pass


class DataDirectoryError(StartupError):
    pass


class NewerData(StartupError):
    pass


class CorruptData(StartupError):
    pass


class HandlingFailure(HoldfastError):
    pass


class Poison(HandlingFailure):
    """`reason` is the failure category that the desk groups by; the text says what is wrong with this message."""

    def __init__(self, error: str, *, reason: str = WRONG_SHAPE, readable: bool = True) -> None:
        super().__init__(error)
        self.reason = reason
        # False when the message could not even be parsed: the push answer is then 400 and not 422.
        self.readable = readable


class Transient(HandlingFailure):
    """`retry_after` is in seconds. What is not a number of seconds, such as a header's text, tells nothing. `reason` is
    the failure category, should its attempts run out."""

    def __init__(self, error: str, *, retry_after: float | None = None, reason: str = "") -> None:
        super().__init__(error)
        self.reason = reason
        given: object = retry_after  # as a handler really gave it
        known = isinstance(given, int | float) and math.isfinite(given) and given >= 0
        self.retry_after = retry_after if known else None


class Misconfigured(HandlingFailure):
    pass
