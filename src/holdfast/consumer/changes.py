"""What a handler asks for: documents replaced, numbers counted up. All of one event's changes happen together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import Poison

# Firestore's limit, so that what works on one store works on all.
LONGEST_ID_BYTES = 1500


@dataclass(frozen=True, slots=True)
class Upsert:
    """Replace the document `collection`/`id` by `fields` (JSON values and datetimes), unless it is newer already.

    Raises Poison for an id that a store could not hold: ids usually come from the payload.
    """

    collection: str
    id: str
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_id("collection", self.collection)
        check_id("document id", self.id)

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.id}"


@dataclass(frozen=True, slots=True)
class Count:
    """Add `numbers` to the same-named fields of a document, which start from 0. Each event counts once, however often
    it is delivered and in whatever order. `fields` are set as they are by the newest event."""

    collection: str
    id: str
    numbers: Mapping[str, int]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("collection", self.collection)
        check_id("document id", self.id)
        numbers: Mapping[str, object] = self.numbers  # as a handler really gave them
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise Poison(f"{name}: only whole numbers can be counted")

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.id}"


Change = Upsert | Count


def check_id(field: str, value: object) -> None:
    """Raises Poison for what cannot name a document or a collection."""
    if not isinstance(value, str):
        raise Poison(f"{field}: must be text")
    if not value or value in (".", ".."):
        raise Poison(f'{field}: must not be empty, "." or ".."')
    if "/" in value:
        raise Poison(f'{field}: must not contain "/"')
    if value.startswith("__") and value.endswith("__") and len(value) > 3:
        raise Poison(f"{field}: must not be like __this__")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Poison(f"{field}: has half of a surrogate pair") from None
    if size > LONGEST_ID_BYTES:
        raise Poison(f"{field}: is longer than {LONGEST_ID_BYTES} bytes")
