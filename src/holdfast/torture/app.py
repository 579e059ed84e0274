"""The consumer under torture: each event is counted once, in a document of its own and in one of its ordering key, so
that an effect that came twice or never shows as a wrong number."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.consumer import Consumer, Count, Event, Poison, Transient

# A file: while it is absent, poison fails. It is made when "the bug is fixed".
MENDED = "TORTURE_MENDED"

TOPIC = "work"

# Collections.
EVENTS = "events"
TOTALS = "totals"

app = Consumer()


def is_mended() -> bool:
    return Path(os.environ[MENDED]).exists()


@app.on(TOPIC)
async def work(event: Event) -> list[Count]:
    data = event.data
    if data["poison"] and not is_mended():
        raise Poison("it cannot be handled before the fix", reason="NOT_MENDED")
    if event.attempt <= data["flaky"]:
        raise Transient(f"not at attempt {event.attempt}", reason="FLAKY")
    return [
        Count(EVENTS, data["name"], {"times": 1}),
        Count(TOTALS, data["key"], {"events": 1, "sum": data["n"]}),
    ]
