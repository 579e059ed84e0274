"""A webhook on a thread: it verifies signatures as docs/alerts.md tells, and keeps what it was told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"canary-of-the-webhook").decode()
PATH = "/alerts/canary-of-the-path"


def is_signed(headers: Any, body: bytes) -> bool:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(expected, headers["webhook-signature"])


class Webhook:
    """While `hangs`, it takes requests and answers none. `status` is what it answers else."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.hangs = False
        self.url = ""
        self.may_end = threading.Event()

    def told(self, rule: str, state: str) -> list[dict[str, Any]]:
        """Notifications of it that were taken, by what they say of the rule's alerts."""
        return [
            one
            for one in self.asked
            if one["taken"] and any((said["rule"], said["state"]) == (rule, state) for said in one["alerts"])
        ]


@contextmanager
def webhook() -> Iterator[Webhook]:
    found = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_right = self.path == PATH and is_signed(self.headers, body)
            taken = is_right and found.status < 300 and not found.hangs
            found.asked.append({**json.loads(body), "taken": taken, "webhook-id": self.headers["webhook-id"]})
            if found.hangs:
                found.may_end.wait(60)
                return
            said = b"" if is_right else b"wrong signature"
            self.send_response(found.status if is_right else 401)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}{PATH}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.may_end.set()
        server.shutdown()
        thread.join()
        server.server_close()
