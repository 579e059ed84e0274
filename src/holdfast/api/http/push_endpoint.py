"""POST /pubsub/push: a Pub/Sub push request in, the settled outcome out."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import error_body, with_errors
from holdfast.consumer.decode import decode_envelope
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.settle import poison_headers, settle
from holdfast.errors import Poison
from holdfast.model.outcome import Poisoned

# Pub/Sub's largest message is 10 MB; base64 makes 13.4 MB of it, and attributes and names come on top.
LARGEST_BODY_BYTES = 14 * 1024 * 1024
TOO_LARGE = "MESSAGE_TOO_LARGE"


def routes(pipeline: Pipeline) -> list[Route]:
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

    return [Route("/pubsub/push", with_errors(push), methods=["POST"])]


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
