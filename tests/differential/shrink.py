"""A sequence that shows a difference, made as short and as plain as it still shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tests.differential.operations import Operation

Shows: TypeAlias = Callable[[Sequence[Operation]], bool]


def shrunk(sequence: Sequence[Operation], shows: Shows) -> list[Operation]:
    """`shows` runs a sequence and says whether the difference is still there."""
    found = _fewer(list(sequence), shows)
    found = _plainer(found, shows)
    return _fewer(found, shows)


def _fewer(sequence: list[Operation], shows: Shows) -> list[Operation]:
    """Leaves out runs of operations, long ones first."""
    size = max(len(sequence) // 2, 1)
    while True:
        at = 0
        while at < len(sequence):
            shorter = sequence[:at] + sequence[at + size :]
            if shorter and shows(shorter):
                sequence = shorter
            else:
                at += size
        if size == 1:
            return sequence
        size //= 2


def _plainer(sequence: list[Operation], shows: Shows) -> list[Operation]:
    """Leaves out what requests say, one field at a time."""
    for at in range(len(sequence)):
        again = True
        while again:
            again = False
            for operation in _simpler(sequence[at]):
                simpler = [*sequence[:at], operation, *sequence[at + 1 :]]
                if shows(simpler):
                    sequence, again = simpler, True
                    break
    return sequence


def _simpler(operation: Operation) -> Iterator[Operation]:
    if operation.rest:
        yield replace(operation, rest=False)
    for where in _places(operation.request):
        request = copy.deepcopy(operation.request)
        inside: Any = request
        for step in where[:-1]:
            inside = inside[step]
        del inside[where[-1]]
        yield replace(operation, request=request)


# Without these there is nothing to do.
_NEEDED = {"subscription", "topic", "name", "mark", "method", "project"}


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inside in items:
        if before or key not in _NEEDED:
            yield (*before, key)
        yield from _places(inside, (*before, key))
