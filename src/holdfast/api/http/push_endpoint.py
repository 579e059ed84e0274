"""POST /pubsub/push: a Pub/Sub push request in, the settled outcome out.

OPTIONS says that we want to be pushed to, as the abuse protection of CloudEvents' HTTP webhooks has it.
"""

from __future__ import annotations

import logging

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import error_body, with_errors
from holdfast.consumer.decode import decode_envelope
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.push_auth import PAUSE_AFTER_ERROR_SECONDS, KeysUnavailable, PushAuth, TokenRefused
from holdfast.consumer.settle import error_header, poison_headers, settle
from holdfast.errors import Poison
from holdfast.model.outcome import Poisoned

log = logging.getLogger("holdfast.consumer")

PATH = "/pubsub/push"

# Pub/Sub's largest message is 10 MB; base64 makes 13.4 MB of it, and attributes and names come on top.
LARGEST_BODY_BYTES = 14 * 1024 * 1024
TOO_LARGE = "MESSAGE_TOO_LARGE"


def routes(pipeline: Pipeline, auth: PushAuth | None = None) -> list[Route]:
    """Without `auth`, anybody may push."""

    async def endpoint(request: Request) -> Response:
        if request.method == "OPTIONS":
            return _consent(request)
        if auth is not None:
            # Before anything of the body is read: it may be large, and its sender is nobody yet.
            refusal = await _refused(auth, request)
            if refusal is not None:
                return refusal
        return await push(request)

    async def push(request: Request) -> Response:
        try:
            # The content type is not looked at: what parses as an envelope is one.
            delivery = decode_envelope(await _body(request))
        except Poison as error:
            return _refusal(pipeline.refuse(error))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it; the sender will try again
        answer = settle(await pipeline.handle(delivery), delivery.message.message_id)
        return JSONResponse(answer.body, answer.status, dict(answer.headers))

    return [Route(PATH, with_errors(endpoint), methods=["POST", "OPTIONS"])]


def _consent(request: Request) -> Response:
    """Anybody may ask, and be as quick as they like: who may really push is up to the token."""
    headers = {"Allow": "POST, OPTIONS"}
    origin = request.headers.get("webhook-request-origin")
    if origin:
        headers |= {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"}
    return Response(headers=headers)


async def _refused(auth: PushAuth, request: Request) -> Response | None:
    # Two headers are joined as HTTP has it, which makes no valid one.
    authorization = ", ".join(request.headers.getlist("authorization"))
    try:
        await auth.check(authorization)
    except TokenRefused as error:
        _warn(request, str(error), error.expected)
        # Our broker shows the reason to its operator, who sees only its side.
        headers = {"WWW-Authenticate": "Bearer", **error_header(str(error))}
        return error_body(401, "UNAUTHENTICATED", str(error), headers)
    except KeysUnavailable as error:
        _warn(request, str(error))
        headers = {"Retry-After": str(PAUSE_AFTER_ERROR_SECONDS), **error_header(str(error))}
        return error_body(503, "UNAVAILABLE", str(error), headers)
    return None


def _warn(request: Request, error: str, expected: str = "") -> None:
    client = request.client.host if request.client else ""
    fields = {"error": error, "expected": expected, "client": client}
    log.warning("a push request was refused", extra={"fields": fields})


async def _body(request: Request) -> bytes:
    """Refuses a body that is too large by what the header says, and while reading by what really comes."""
    announced = request.headers.get("content-length", "")
    # A number of 10 digits or more is too large whatever it is, and int() refuses very long ones.
    if announced.isdecimal() and (len(announced) > 9 or int(announced) > LARGEST_BODY_BYTES):
        raise _too_large()
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY_BYTES:
            raise _too_large()
    return bytes(body)


def _too_large() -> Poison:
    return Poison(f"body: is larger than {LARGEST_BODY_BYTES} bytes", reason=TOO_LARGE, readable=False)


def _refusal(outcome: Poisoned) -> JSONResponse:
    code = 413 if outcome.reason == TOO_LARGE else 400
    return error_body(code, "INVALID_ARGUMENT", outcome.error, poison_headers(outcome))
