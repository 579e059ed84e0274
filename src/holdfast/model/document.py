"""Documents, and the order in which events may change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class EventOrder(NamedTuple):
    """Later events compare greater. Parts that an event lacks are 0 or "", so a comparison always has one answer."""

    event_time_ns: int
    sequence: int
    publish_time_ns: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Document:
    """`fields` hold JSON values; timestamps are RFC 3339 text."""

    collection: str
    id: str
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.id}"
