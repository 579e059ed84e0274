"""Text that quotes what nobody may see: finds it however it is written, and puts HIDDEN in its place. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from holdfast.model.exact_json import Number
from holdfast.model.failed_message import CUT_MARK

HIDDEN = "[redacted]"

# A value that is shorter is replaced only where it stands alone: a "7" is in nearly every text.
SHORTEST_ANYWHERE = 4
# The end of a text that was cut may hold the beginning of a value.
SHORTEST_BEGINNING = 3
# Errors come through headers and attributes, which hold somewhat more, and are cut there without a mark.
SHORTEST_CUT = 500
# Of what cannot be read, every word of this length is hidden.
_WORD = re.compile(r"\w{3,}")


def texts_of(value: Any) -> Iterator[str]:
    """What stands at the leaves of JSON, and its keys. Empty text, true, false and null tell nothing that a text could
    be searched for."""
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, Number):
        yield value.text
    elif isinstance(value, str) and value.strip():
        yield value


def without_values(text: str, values: Collection[str]) -> str:
    # What is longer than the text can only be cut off at its end.
    written = sorted({form for value in values for form in _written(value, len(text) + 1)}, key=len, reverse=True)
    patterns = [_pattern(form) for form in written if len(form) <= len(text)]
    shown = re.sub("|".join(patterns), HIDDEN, text, flags=re.IGNORECASE) if patterns else text
    may_be_cut = shown.endswith(CUT_MARK) or len(text) >= SHORTEST_CUT
    return _without_cut_end(shown, written) if may_be_cut else shown


def without_words_of(text: str, data: bytes) -> str:
    """Any word of `data` may be what must not be seen."""
    hidden = {word.casefold() for word in _WORD.findall(data.decode(errors="ignore"))}
    return _WORD.sub(lambda word: HIDDEN if word[0].casefold() in hidden else word[0], text)


def _written(value: str, longest: int) -> set[str]:
    """As JSON, Python and URLs write it; errors put spaces together, and lines. No more than the beginnings of what is
    longer than `longest`: a value may have 10 MB."""
    forms = {value, value.strip(), " ".join(value.split()), quote(value[:longest]), quote(value[:longest], safe="")}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return {form[:longest] for form in forms if form}


def _pattern(form: str) -> str:
    escaped = re.escape(form)
    return escaped if len(form) >= SHORTEST_ANYWHERE else rf"(?<!\w){escaped}(?!\w)"


def _without_cut_end(text: str, written: Sequence[str]) -> str:
    kept = text.removesuffix(CUT_MARK)
    for form in written:
        for length in range(min(len(form) - 1, len(kept)), SHORTEST_BEGINNING - 1, -1):
            if kept.endswith(form[:length]):
                return kept[:-length] + HIDDEN + text[len(kept) :]
    return text
