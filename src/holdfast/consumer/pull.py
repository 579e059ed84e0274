"""Streaming in by pull: the same pipeline, fed from a subscription instead of by HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.transport import Transport
from holdfast.errors import HoldfastError
from holdfast.model.message import Delivery
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale

log = logging.getLogger("holdfast.consumer")

# No more than the pipeline can take in at once, so that nothing is turned away that was asked for.
BATCH_MESSAGES = 8
WAIT_SECONDS = 10.0
PAUSE_AFTER_ERROR_SECONDS = 1.0


async def consume(transport: Transport, pipeline: Pipeline, subscription: str) -> None:
    """Runs until cancelled."""
    while True:
        try:
            deliveries = await transport.receive(subscription, BATCH_MESSAGES, WAIT_SECONDS)
            await asyncio.gather(*(_handle(transport, pipeline, delivery) for delivery in deliveries))
        except HoldfastError as error:
            log.error(
                "messages could not be pulled",
                extra={"fields": {"subscription": subscription, "error": str(error)}},
            )
            await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)


async def _handle(transport: Transport, pipeline: Pipeline, delivery: Delivery) -> None:
    if is_done(await pipeline.handle(delivery)):
        await transport.ack([delivery])
    else:
        await transport.nack([delivery])


def is_done(outcome: Outcome) -> bool:
    """Poison is nacked: the subscription's dead-letter policy takes it from there, and nothing is lost without one."""
    match outcome:
        case Applied() | Duplicate() | Stale():
            return True
        case Poisoned() | Retry():
            return False
        case _:
            assert_never(outcome)
