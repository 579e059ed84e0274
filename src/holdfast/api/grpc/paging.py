"""Pages of a list that is sorted by name: the token is the last name given, so pages stay right while things change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.errors import BadInput

Item = TypeVar("Item")

LARGEST_PAGE = 1000


def page_of(items: Sequence[Item], name_of: Callable[[Item], str], request: Any) -> tuple[Sequence[Item], str]:
    if request.page_size < 0:
        raise BadInput("page_size", f"{request.page_size} is negative")
    size = min(request.page_size or LARGEST_PAGE, LARGEST_PAGE)
    rest = [item for item in items if name_of(item) > request.page_token] if request.page_token else items
    page = rest[:size]
    return page, name_of(page[-1]) if len(rest) > size else ""
