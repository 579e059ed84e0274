"""Which trace a message is part of: looked for in its bytes without parsing, put in by appending, or remembered."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.broker.wire import PubsubMessage, varint
from holdfast.tracing.context import ATTRIBUTE, LENGTH, checked, is_sampled
from holdfast.tracing.traces import Traces

# Pub/Sub's limit.
MOST_ATTRIBUTES = 100

# Messages without a context of their own whose publish is remembered, some MB of memory at most. Most are delivered
# at once.
MOST_REMEMBERED = 10_000

_KEY = ATTRIBUTE.encode()
_ATTRIBUTES = b"\x12"  # PubsubMessage.attributes = 2
# An entry of a map: key = 1, value = 2. Every protobuf library writes them in this order.
_ENTRY = b"\x0a" + varint(len(_KEY)) + _KEY + b"\x12" + varint(LENGTH)
# The last digit, whose lowest bit says so.
_UP_TO_FLAGS = len(_ENTRY) + LENGTH - 1
_SAMPLED = b"13579bdf"

# Stands for any that is not.
NOT_SAMPLED = "00"


def context_in(body: bytes) -> str:
    """ "" where the message carries none. Of one that is not sampled no more than that is looked at."""
    at = body.rfind(_ENTRY)  # attributes stand behind the data, which may hold the same bytes
    if at < 0:
        return ""
    flag = at + _UP_TO_FLAGS
    if body[flag : flag + 1] not in _SAMPLED:
        return NOT_SAMPLED
    return checked(PubsubMessage.FromString(body).attributes.get(ATTRIBUTE, ""))


def with_context(message: bytes, context: str) -> bytes:
    """The same where there is no room for one more attribute, and where nothing is in it: that is for the broker to
    refuse."""
    parsed = PubsubMessage.FromString(message)
    is_empty = not parsed.data and not parsed.attributes
    if is_empty or len(parsed.attributes) >= MOST_ATTRIBUTES:
        return message
    entry = _ENTRY + context.encode()
    return b"".join((message, _ATTRIBUTES, varint(len(entry)), entry))


class Tracing:
    """What a traced broker's parts share. `marks`: what was published without a context gets one."""

    def __init__(self, traces: Traces, *, marks: bool) -> None:
        self.traces = traces
        self.marks = marks
        self._remembered: OrderedDict[int, str] = OrderedDict()  # by message number

    def remember(self, number: int, context: str) -> None:
        self._remembered[number] = context
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)

    def context_of(self, number: int, body: bytes) -> str:
        """ "" where it is not known, or not sampled."""
        context = context_in(body) or self._remembered.get(number, "")
        return context if is_sampled(context) else ""
