"""Removes, in the background, dedupe marks whose time has passed."""

from __future__ import annotations

import logging

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.documents import DocumentStore

log = logging.getLogger("holdfast.consumer")

EVERY_SECONDS = 600


async def keep_forgetting(store: DocumentStore, clock: Clock) -> None:
    """Runs until cancelled."""
    while True:
        try:
            await store.forget_expired(clock.now_ns())
        except Exception as error:  # noqa: BLE001 - whatever it is: they will still be there next time
            fields = {"error_type": type(error).__name__, "error": str(error)}
            log.warning("expired dedupe marks could not be removed", extra={"fields": fields})
        await clock.sleep_until(clock.now_ns() + EVERY_SECONDS * NANOSECONDS)
