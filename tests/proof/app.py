"""The consumer under proof: the built-in materializer; orders that are counted, so that an event applied twice or never
shows as a wrong number; and events that every store refuses, which must not harm those that share a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.consumer import Count, Event, Upsert
from holdfast.consumer.materializer import materializer
from holdfast.settings import ConsumerSettings

app = materializer(ConsumerSettings())


def order_identity(event: Event) -> Mapping[str, Any]:
    return {"order": event.data["order"], "step": event.data["step"]}


@app.on("orders", identity=order_identity)
async def orders(event: Event) -> list[Upsert | Count]:
    await asyncio.sleep(0)  # as one that asks somebody else would
    data = event.data
    return [
        Upsert("orders", data["order"], {"step": data["step"], "amount": data["amount"], "message": event.message_id}),
        Count("shops", data["shop"], {"events": 1, "amount": data["amount"]}, {"newest": event.message_id}),
    ]


@app.on("blocker")
def blocker(event: Event) -> Upsert:
    return Upsert("blocked", "it", {"number": "a text"})


@app.on("unstorable")
def unstorable(event: Event) -> list[Upsert | Count]:
    """A text cannot be counted up, so nothing of it may happen."""
    return [Upsert("never", event.message_id, {}), Count("blocked", "it", {"number": 1})]
