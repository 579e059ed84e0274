"""One HTTP answer, and how it goes out over ASGI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.types import Send


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    content_type: bytes
    body: bytes


def json_answer(value: Any, code: int = 200) -> Answer:
    return Answer(code, b"application/json; charset=UTF-8", json.dumps(value, separators=(",", ":")).encode())


def text_answer(text: str) -> Answer:
    return Answer(200, b"text/plain; charset=UTF-8", text.encode())


async def send_answer(answer: Answer, send: Send) -> None:
    headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
