"""JSON whose numbers are exact, in and out: what edits are about must not be rounded on its way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.http.requests import json_object
from holdfast.model.exact_json import dump_exact_json, parse_exact_json, plain


class ExactJSONResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump_exact_json(content).encode()


async def exact_object(request: Request, known: Collection[str]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The body twice: exactly, and as other readers take it."""
    given = await json_object(request, known, parse_exact_json)
    return given, plain(given)
