"""What a desk's database is called, and its secret: made once, by whoever asks first."""

from __future__ import annotations

from holdfast.stores.desk.statements import Ask, Operation, portable

_GET = portable("SELECT value FROM desk_meta WHERE name = :name")

_MAKE = portable("INSERT INTO desk_meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING")


def value_of(name: str) -> Operation[str | None]:
    rows = yield Ask(_GET, {"name": name})
    return str(rows[0][0]) if rows else None


def made_once(name: str, value: str) -> Operation[str]:
    yield Ask(_MAKE, {"name": name, "value": value})
    [(stored,)] = yield Ask(_GET, {"name": name})
    return str(stored)
