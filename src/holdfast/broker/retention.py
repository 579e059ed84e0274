"""In the background: removes, in small steps, what no subscription needs any more, and marks how far all have come."""

from __future__ import annotations

import logging

from holdfast.broker.service import Broker
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import StorageUnavailable

log = logging.getLogger("holdfast.broker")

EVERY_SECONDS = 10

# How exactly it is known later when a message was published or settled. Nothing is written while nothing moves.
MARK_EVERY_SECONDS = 1

# One step's deletions share a transaction with publishes that wait at that moment; this many take a few milliseconds.
STEP_MESSAGES = 2000


async def keep_removing(broker: Broker, clock: Clock) -> None:
    """Runs until cancelled."""
    while True:
        await clock.sleep_until(clock.now_ns() + EVERY_SECONDS * NANOSECONDS)
        try:
            await remove_once(broker)
        except StorageUnavailable as error:  # it will be there next time
            log.warning("old messages could not be removed", extra={"fields": {"error": str(error)}})
        except Exception:  # a fault with one must not end it for all, until the disk is full
            log.exception("old messages could not be removed")


async def remove_once(broker: Broker) -> None:
    await broker.delete_expired()
    for queue in broker.queues:
        await queue.drop_expired()
    while await broker.forget_settled(STEP_MESSAGES) >= STEP_MESSAGES:
        continue  # each step waits for its commit, so that everyone else has a turn
    while await broker.forget_facts(STEP_MESSAGES) >= STEP_MESSAGES:
        continue


async def keep_marking(broker: Broker, clock: Clock) -> None:
    """Runs until cancelled. At once too: what a process that was killed had settled is known to be so from then on."""
    while True:
        try:
            await broker.mark_progress()
        except StorageUnavailable as error:
            log.warning("progress could not be marked", extra={"fields": {"error": str(error)}})
        except Exception:
            log.exception("progress could not be marked")
        await clock.sleep_until(clock.now_ns() + MARK_EVERY_SECONDS * NANOSECONDS)
