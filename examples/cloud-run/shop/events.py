"""Orders become documents, and are counted by day."""

from __future__ import annotations

from holdfast.consumer import Consumer, Count, Event, Poison, Upsert

app = Consumer()


@app.on("orders")
def order(event: Event) -> list[Upsert | Count]:
    number, day = event.data.get("number"), event.data.get("day")
    if number is None or not isinstance(day, str):
        raise Poison("number and day: must be there")
    return [
        Upsert("orders", str(number), {"day": day, "total": event.data.get("total", 0)}),
        Count("orders_by_day", day, {"placed": 1}),
    ]
