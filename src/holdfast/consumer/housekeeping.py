"""Removes, in the background, dedupe marks whose time has passed."""

from __future__ import annotations

import logging

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.documents import DocumentStore
from holdfast.errors import StorageUnavailable

log = logging.getLogger("holdfast.consumer")

EVERY_SECONDS = 600


async def keep_forgetting(store: DocumentStore, clock: Clock) -> None:
    """Runs until cancelled."""
    while True:
        try:
            await store.forget_expired(clock.now_ns())
        except StorageUnavailable as error:  # they will still be there next time
            log.warning("expired dedupe marks could not be removed", extra={"fields": {"error": str(error)}})
        await clock.sleep_until(clock.now_ns() + EVERY_SECONDS * NANOSECONDS)
