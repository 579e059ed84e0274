"""POST /pubsub/push: a Pub/Sub push request in, the settled outcome out.

OPTIONS says that we want to be pushed to, as the abuse protection of CloudEvents' HTTP webhooks has it.
"""

from __future__ import annotations

import json
import logging

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.http.callers_trace import CallersTrace
from holdfast.api.http.errors import error_body, with_errors
from holdfast.consumer.decode import decode_envelope
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.push_auth import PAUSE_AFTER_ERROR_SECONDS, KeysUnavailable, PushAuth, TokenRefused
from holdfast.consumer.settle import PushAnswer, Way, error_header, poison_headers, push_answer
from holdfast.errors import Poison
from holdfast.tracing.traces import Traces

log = logging.getLogger("holdfast.consumer")

PATH = "/pubsub/push"

# Pub/Sub's largest message is 10 MB; base64 makes 13.4 MB of it, and attributes and names come on top.
LARGEST_BODY_BYTES = 14 * 1024 * 1024
TOO_LARGE = "MESSAGE_TOO_LARGE"
WRONG_TYPE = "WRONG_CONTENT_TYPE"
_STATUS_BY_REASON = {TOO_LARGE: 413, WRONG_TYPE: 415}

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps would make one each time


class PushEndpoint:
    """An ASGI application of its own: the ways of Starlette would take longer than the message does."""

    def __init__(self, pipeline: Pipeline, auth: PushAuth | None) -> None:
        self._pipeline = pipeline
        self._auth = auth
        self._answer_or_error = with_errors(self._answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer_or_error(Request(scope, receive))
        if scope["method"] == "POST":
            self._pipeline.counts.answers[answer.status_code] += 1
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return _consent(request)
        if self._auth is not None:
            # Before anything of the body is read: it may be large, and its sender is nobody yet.
            refusal = await _refused(self._auth, request)
            if refusal is not None:
                return refusal
        headers: dict[bytes, bytes] = dict(request.scope["headers"])
        try:
            _check_content_type(headers.get(b"content-type", b""))
            delivery = decode_envelope(await _body(request, headers.get(b"content-length", b"")))
        except Poison as error:
            return _refusal(self._pipeline, error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it; the sender will try again
        settlement = await self._pipeline.handle(delivery, Way.PUSH)
        return _Settled(push_answer(settlement, delivery.message.message_id))


def routes(pipeline: Pipeline, auth: PushAuth | None = None, traces: Traces | None = None) -> list[Route]:
    """Without `auth`, anybody may push."""
    endpoint: ASGIApp = PushEndpoint(pipeline, auth)
    if traces is not None:
        endpoint = CallersTrace(endpoint, traces)
    return [Route(PATH, endpoint, methods=["POST", "OPTIONS"])]


class _Settled(Response):
    """Without what Starlette's own would look up for each."""

    def __init__(self, answer: PushAnswer) -> None:
        self.status_code = answer.status
        self.body = _ENCODER.encode(answer.body).encode()
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]
        self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


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


def _check_content_type(given: bytes) -> None:
    """A page in a browser may post other types wherever it likes. None at all is taken for JSON."""
    kind = given.partition(b";")[0].strip().lower()
    if kind and kind != b"application/json" and not kind.endswith(b"+json"):
        shown = kind[:64].decode("latin-1")
        raise Poison(f"content-type: must be application/json, not {shown!r}", reason=WRONG_TYPE, readable=False)


async def _body(request: Request, announced: bytes) -> bytes:
    """Refuses a body that is too large by what the header says, and while reading by what really comes."""
    # A number of 10 digits or more is too large whatever it is, and int() refuses very long ones.
    if announced.isdigit() and (len(announced) > 9 or int(announced) > LARGEST_BODY_BYTES):
        raise _too_large()
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > LARGEST_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return b"".join(pieces)


def _too_large() -> Poison:
    return Poison(f"body: is larger than {LARGEST_BODY_BYTES} bytes", reason=TOO_LARGE, readable=False)


def _refusal(pipeline: Pipeline, error: Poison) -> JSONResponse:
    """Pub/Sub sends no such thing, so it is no message that could be lost."""
    code = _STATUS_BY_REASON.get(error.reason, 400)
    outcome = pipeline.refuse(error, code)
    return error_body(code, "INVALID_ARGUMENT", outcome.error, poison_headers(outcome))
