"""The topic under torture and its subscriptions, by the way in which each is read."""

from __future__ import annotations

PROJECT = "torture"
TOPIC = "work"

# A Holdfast consumer is pushed to; another one pulls.
PUSHED = "work.pushed"
PULLED = "work.pulled"
# The lab itself receives: by push, and by two pullers.
ENDPOINT = "work.endpoint"
ONCE = "work.once"
IN_ORDER = "work.in-order"

CONSUMED = (PUSHED, PULLED)
RECEIVED = (ENDPOINT, ONCE, IN_ORDER)
ALL = (*CONSUMED, *RECEIVED)

# What the checker may expect of those that the lab sees.
ORDERED = (ENDPOINT, IN_ORDER)
EXACTLY_ONCE = (ONCE,)
REPLAYED = (ENDPOINT,)


def dead_letters_of(sub: str) -> str:
    """The topic."""
    return f"{sub}.dlq"


def desk_of(sub: str) -> str:
    """The subscription through which the desk reads them."""
    return f"{sub}.dlq.desk"
