"""A lease: one delivery of one message that is under way, and the ack id that names it on the wire."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast.errors import BadInput


class Holder(Protocol):
    """Whoever holds leases: a stream, a pull, a push sender."""

    def released(self, lease: Lease) -> None:
        """The lease ended: acked, failed or expired. Called exactly once."""
        ...


class NoHolder:
    """For unary pulls, which keep no count of what they hand out."""

    def released(self, lease: Lease) -> None:
        pass


@dataclass(slots=True, eq=False)
class Lease:
    sequence: int
    attempt: int
    ack_id: str
    body: bytes
    deadline_ns: int
    holder: Holder
    confirmed: bool = False  # the client asked for more time, so it has the message
    failure: Failure | None = None  # what the client said when it put the message off


class AckId(NamedTuple):
    subscription_key: int
    sequence: int
    attempt: int
    nonce: int


_ACK_ID = re.compile(r"(\d{1,12})-(\d{1,14})-(\d{1,9})-(\d{1,19})", re.ASCII)


def format_ack_id(subscription_key: int, sequence: int, attempt: int, nonce: int) -> str:
    """All that is needed to settle is in the id itself, so that it still means something after a restart."""
    return f"{subscription_key}-{sequence}-{attempt}-{nonce}"


def parse_ack_id(text: str) -> AckId:
    match = _ACK_ID.fullmatch(text)
    if match is None:
        raise BadInput("ack_ids", f"{text[:100]!r} is not an ack id that this broker gave")
    return AckId(*map(int, match.groups()))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery failed, as far as it is known. `dead_letter_now` asks not to spend the remaining attempts."""

    error: str = ""
    status: str = ""
    reason: str = ""
    dead_letter_now: bool = False
    about_the_message: bool = False  # and so not about the subscriber's health
    retry_after_seconds: float | None = None


NACKED = Failure(error="nacked by the subscriber", status="nack")
LEASE_RAN_OUT = Failure(error="the ack deadline passed", status="deadline")
