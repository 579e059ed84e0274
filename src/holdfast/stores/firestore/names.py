"""Ids in Firestore: which it can hold, and how a mark is kept whose id it would refuse. Pure."""

from __future__ import annotations

import hashlib

from holdfast.consumer.changes import LONGEST_ID_BYTES


def is_possible_id(text: str) -> bool:
    return bool(text) and "/" not in text and text not in (".", "..") and not is_reserved(text) and _fits(text)


def is_reserved(name: str) -> bool:
    """Ids and field names like __this__ are Firestore's own."""
    return len(name) > 3 and name.startswith("__") and name.endswith("__")


def mark_document_id(mark_id: str) -> str:
    """The same id where Firestore takes it, as it does nearly always, so that people and other programs find the mark.

    Otherwise what it refuses is written as in a URL (urllib.parse.unquote gives the id back), and an id that is too
    long for that becomes its SHA-256. No two ids become one: a "%" is always escaped, and never followed by an "s".
    """
    escaped = _escaped(mark_id)
    return escaped if _fits(escaped) else f"%sha256:{hashlib.sha256(mark_id.encode()).hexdigest()}"


def is_shortened(mark_id: str) -> bool:
    return not _fits(_escaped(mark_id))


def _escaped(mark_id: str) -> str:
    escaped = mark_id.replace("%", "%25").replace("/", "%2F")
    if escaped in (".", ".."):
        return escaped.replace(".", "%2E")
    return "%5F" + escaped[1:] if is_reserved(escaped) else escaped


def _fits(text: str) -> bool:
    return len(text) <= LONGEST_ID_BYTES and len(text.encode(errors="replace")) <= LONGEST_ID_BYTES
