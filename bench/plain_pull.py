"""A subscriber as Google's client makes it easy: PORT SUBSCRIPTION DATABASE JOURNAL.

The callback does what the built-in materializer does for a system event, one message at a time: a dedupe record and a
document, in one SQLite transaction that is on disk before the message is acked. Flow control is the client's default.
SQLite's own default for the journal is delete; wal is the faster one.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message

TABLES = """
PRAGMA journal_mode = {journal};
PRAGMA synchronous = FULL;
CREATE TABLE dedupe (message_id TEXT PRIMARY KEY, created_at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (id TEXT PRIMARY KEY, fields TEXT NOT NULL, updated_at TEXT NOT NULL) WITHOUT ROWID;
"""

CLAIM = "INSERT OR IGNORE INTO dedupe (message_id, created_at) VALUES (?, datetime('now'))"

# Unless what is there is newer.
PUT = """
INSERT INTO documents (id, fields, updated_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET fields = excluded.fields, updated_at = excluded.updated_at
WHERE updated_at < excluded.updated_at
"""


class Store:
    """Callbacks come on several threads; SQLite has one writer."""

    def __init__(self, path: str, journal: str) -> None:
        self.done = 0
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.executescript(TABLES.format(journal=journal))
        self._lock = threading.Lock()

    def apply(self, message: Message) -> None:
        event = json.loads(message.data)
        document_id, fields = f"local__{event['service']}", document_of(event, message)
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._connection.execute(CLAIM, (message.message_id,)).rowcount:
                self._connection.execute(PUT, (document_id, fields, event["producedAt"]))
            self._connection.execute("COMMIT")
            self.done += 1


def document_of(event: dict[str, str], message: Message) -> str:
    return json.dumps(
        {
            "serviceId": event["service"],
            "env": "local",
            "status": event["status"],
            "lastHeartbeatAt": event["lastHeartbeatAt"],
            "version": event["version"],
            "region": event["region"],
            "updatedAt": event["producedAt"],
            "source": {
                "topic": message.attributes["topic"],
                "messageId": message.message_id,
                "publishedAt": message.publish_time.isoformat(),
            },
        }
    )


def main() -> None:
    port, subscription, path, journal = sys.argv[1:]
    store = Store(path, journal)

    def callback(message: Message) -> None:
        store.apply(message)
        message.ack()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"done": store.done}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass  # it is asked many times

    pubsub_v1.SubscriberClient().subscribe(subscription, callback)
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
