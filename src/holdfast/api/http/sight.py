"""What a request may see: the header Holdfast-Reveal and who sends it."""

from __future__ import annotations

from starlette.requests import Request

from holdfast.api.http.describing import Parameter
from holdfast.api.http.requests import actor_of
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.sight import Sight

REVEAL = Parameter(
    "Holdfast-Reveal", "The token that shows what is redacted; its use is audited", where="header", example="the-token"
)


async def redaction_for(request: Request, sight: Sight) -> Redaction:
    """To be called once for a request, since it is audited."""
    return await sight.of(request.headers.get("holdfast-reveal"), actor_of(request), request.url.path)
