"""A push endpoint that makes one Firestore transaction for each message, eight at a time: PORT PROJECT.

It does what the built-in materializer does for a system event, in the way that first comes to mind, with Google's own
client: read the dedupe record and the service, create the one and set the other.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from google.cloud import firestore
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

WORKERS = 8
WAITING = 1_024
DEDUPE_DAYS = 7


@dataclass(frozen=True, slots=True)
class Waiting:
    message: dict[str, Any]
    done: asyncio.Future[str]


def make_app(project: str) -> Starlette:
    database = firestore.AsyncClient(project=project)
    queue: asyncio.Queue[Waiting] = asyncio.Queue(WAITING)

    async def push(request: Request) -> Response:
        message = (await request.json())["message"]
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            queue.put_nowait(Waiting(message, done))
        except asyncio.QueueFull:
            return JSONResponse({"error": "backpressure_queue_full"}, status_code=429)
        return JSONResponse({"outcome": await done, "messageId": message["messageId"]})

    async def readyz(request: Request) -> Response:
        return JSONResponse({"status": "ready"})

    async def work() -> None:
        while True:
            waiting = await queue.get()
            try:
                waiting.done.set_result(await apply(database, waiting.message))
            except Exception as error:  # noqa: BLE001 - the sender is told by a 500
                waiting.done.set_exception(error)

    @asynccontextmanager
    async def working(app: Starlette) -> AsyncIterator[None]:
        workers = [asyncio.create_task(work()) for _ in range(WORKERS)]
        yield
        for worker in workers:
            worker.cancel()

    routes = [Route("/pubsub/push", push, methods=["POST"]), Route("/readyz", readyz)]
    return Starlette(routes=routes, lifespan=working)


async def apply(database: firestore.AsyncClient, message: dict[str, Any]) -> str:
    event = json.loads(base64.b64decode(message["data"]))
    return str(await in_transaction(database.transaction(), database, message, event))


@firestore.async_transactional
async def in_transaction(
    transaction: firestore.AsyncTransaction,
    database: firestore.AsyncClient,
    message: dict[str, Any],
    event: dict[str, Any],
) -> str:
    seen = database.collection("ops_dedupe").document(message["messageId"])
    service = database.collection("ops_services").document(f"local__{event['service']}")
    produced = datetime.datetime.fromisoformat(event["producedAt"])
    if (await seen.get(transaction=transaction)).exists:
        return "duplicate"
    stored = await service.get(transaction=transaction)
    now = datetime.datetime.now(datetime.UTC)
    expires = now + datetime.timedelta(days=DEDUPE_DAYS)
    transaction.create(seen, {"createdAt": now, "messageId": message["messageId"], "expireAt": expires})
    if stored.exists and stored.get("updatedAt") > produced:
        return "stale_ignored"
    transaction.set(service, document_of(event, message, produced))
    return "applied"


def document_of(event: dict[str, Any], message: dict[str, Any], produced: datetime.datetime) -> dict[str, Any]:
    return {
        "serviceId": event["service"],
        "env": "local",
        "status": event["status"],
        "lastHeartbeatAt": datetime.datetime.fromisoformat(event["lastHeartbeatAt"]),
        "version": event["version"],
        "region": event["region"],
        "updatedAt": produced,
        "source": {
            "topic": message["attributes"]["topic"],
            "messageId": message["messageId"],
            "publishedAt": datetime.datetime.fromisoformat(message["publishTime"]),
        },
    }


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", http="httptools")
