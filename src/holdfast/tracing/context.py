"""A trace context as W3C writes it, and where a message and a request carry it.

00-<trace id, 32 hex digits>-<span id, 16>-<flags, 2>
"""

from __future__ import annotations

import re

# Google's clients put `traceparent` here, with their prefix; a message that is pushed or pulled carries it all the way.
ATTRIBUTE = "googclient_traceparent"

HEADER = "traceparent"

LENGTH = 55
_SAMPLED = 1
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def checked(traceparent: str) -> str:
    """ "" for what is no context: anybody may write anything there."""
    return traceparent if _TRACEPARENT.fullmatch(traceparent) else ""


def is_sampled(traceparent: str) -> bool:
    """Whether whoever began the trace wants to see it."""
    return bool(traceparent) and bool(int(traceparent[-2:], 16) & _SAMPLED)


def are_of_one_trace(first: str, second: str) -> bool:
    return trace_id(first) == trace_id(second)


def trace_id(traceparent: str) -> str:
    return traceparent[3:35]
