"""Keeps the number of series bounded, however many subscriptions, topics or reasons there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

# Names with series of their own. All others are counted together as OTHER, which cannot be the path of a subscription
# or a topic.
MOST_NAMES = 1000
OTHER = "other"


def bounded(rows: Mapping[str, T], together: Callable[[Sequence[T]], T], most: int = MOST_NAMES) -> list[tuple[str, T]]:
    """The first ones by name, and last what `together` makes of the rest."""
    names = sorted(rows)
    own = [(name, rows[name]) for name in names[:most]]
    rest = [rows[name] for name in names[most:]]
    return [*own, (OTHER, together(rest))] if rest else own
