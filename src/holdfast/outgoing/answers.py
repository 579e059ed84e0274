"""What becomes of a request: an answer, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Reasons end up in logs and on pages, and an endpoint may have a say in them.
LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """Header names are in lower case; of one that comes more than once, the first value counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """`kind` is one word for metrics and logs: timeout, dns, refused, blocked, tls, closed, malformed or too_large; and
    unsent, when a want of this machine's own kept the request from leaving. `answered` is the status of an answer
    whose body was too large, else 0."""

    kind: str
    error: str
    answered: int = 0


Outcome = Answer | NoAnswer

STOPPING = NoAnswer("closed", "Holdfast is stopping")


def no_answer(kind: str, error: str) -> NoAnswer:
    """For a reason that is not all our own words."""
    return NoAnswer(kind, printable(error, LONGEST_REASON))


def printable(text: str, longest: int) -> str:
    """Of what an endpoint may have a say in, and that ends up on terminals and pages."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
