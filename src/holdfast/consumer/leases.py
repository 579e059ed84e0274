"""What one subscription's deliveries need from the broker while they are in our hands: more time as long as they are
worked on, and at last an ack or a nack, many in one call.

Nothing here can lose a message. What the broker was not told, or was told too late, it sends again, and the dedupe
marks make that harmless.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.transport import Transport
from holdfast.errors import HoldfastError, StaleAckIds, StorageUnavailable
from holdfast.model.message import Delivery

log = logging.getLogger("holdfast.consumer")

# How long a delivery is ours when we say nothing: so late does another consumer get it after our machine died.
DEADLINE_SECONDS = 30
# Two of these may fail before a deadline passes.
EXTEND_EVERY_SECONDS = 8

# Nacks that differ need a call each. An outage nacks many, and beyond these the error's text goes for the calls' sake.
MOST_DIFFERENT_NACKS = 20

# An ack is offered this often; by the last time its lease is nearly over anyway.
ACK_TRIES = 6
SHORTEST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _Held:
    delivery: Delivery
    since_ns: int
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class _Nack:
    """Equal ones share a call. Brokers know whole seconds."""

    seconds: int
    reason: str = ""
    error: str = ""
    rejects: bool = False


class Leases:
    def __init__(self, transport: Transport, clock: Clock, subscription: str, max_seconds: float) -> None:
        self.bytes = 0
        self._transport = transport
        self._clock = clock
        self._subscription = subscription
        self._max_ns = round(max_seconds * NANOSECONDS)
        self._held: dict[str, _Held] = {}
        self._acks: list[Delivery] = []
        self._nacks: dict[_Nack, list[Delivery]] = defaultdict(list)
        self._sending: asyncio.Task[None] | None = None
        self._fewer: asyncio.Future[None] | None = None
        # An extension that is on its way must not overtake a nack, and cut its delay short.
        self._changing_deadlines = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Gives those that were not in our hands already."""
        now = self._clock.now_ns()
        new: list[Delivery] = []
        for delivery in deliveries:
            if delivery.ack_id not in self._held:
                self._held[delivery.ack_id] = _Held(delivery, now)
                self.bytes += len(delivery.message.data)
                new.append(delivery)
        return new

    async def wait_for_fewer(self) -> None:
        self._fewer = self._fewer or asyncio.get_running_loop().create_future()
        await asyncio.shield(self._fewer)

    # Settling.

    def ack(self, delivery: Delivery) -> None:
        """It stays ours until the broker has the ack."""
        self._acks.append(delivery)
        self._send()

    def nack(self, delivery: Delivery, delay_seconds: float = 0.0, reason: str = "", error: str = "") -> None:
        """It is not extended any more from now on."""
        nack = _Nack(math.ceil(delay_seconds), reason, error)
        if nack not in self._nacks and len(self._nacks) >= MOST_DIFFERENT_NACKS:
            nack = replace(nack, error="")
        self._give_up(delivery, nack)

    def reject(self, delivery: Delivery, reason: str, error: str) -> None:
        """It will never succeed."""
        self._give_up(delivery, _Nack(0, reason, error, rejects=True))

    def _give_up(self, delivery: Delivery, nack: _Nack) -> None:
        self._nacks[nack].append(delivery)
        self._forget([delivery])
        self._send()

    async def settled(self) -> None:
        """Returns once the broker was told all that there is to tell, or could not be."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def close(self) -> None:
        """What the broker does not know yet it never hears."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if self._held.pop(delivery.ack_id, None) is not None:
                self.bytes -= len(delivery.message.data)
        if self._fewer is not None:
            self._fewer.set_result(None)
            self._fewer = None

    def _send(self) -> None:
        """Whatever is settled until the broker has answered goes with the next call."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._acks or self._nacks:
                acks, self._acks = self._acks, []
                nacks, self._nacks = self._nacks, defaultdict(list)
                if acks:
                    await self._send_acks(acks)
                for nack, deliveries in nacks.items():
                    await self._send_nacks(deliveries, nack)
        finally:
            # In the same step in which it found that nothing waits: whatever comes next starts another.
            self._sending = None

    async def _send_acks(self, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._ack_with_retries(deliveries)
        except StaleAckIds as error:
            self._log(logging.WARNING, "acks came too late; the messages come again", len(error.ack_ids))
        except Exception as error:  # noqa: BLE001 - whatever it is: they come again
            self._log(logging.ERROR, "messages could not be acked and come again", len(deliveries), error)
        finally:
            self._forget(deliveries)

    async def _ack_with_retries(self, deliveries: Sequence[Delivery]) -> None:
        attempt = 1
        while True:
            try:
                await self._transport.ack(deliveries)
            except StorageUnavailable:
                if attempt >= ACK_TRIES:
                    raise
            else:
                return
            await self._pause(attempt)
            attempt += 1

    async def _pause(self, failures: int) -> None:
        seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures)
        await self._clock.sleep_until(self._clock.now_ns() + round(seconds * NANOSECONDS))

    async def _send_nacks(self, deliveries: Sequence[Delivery], nack: _Nack) -> None:
        try:
            async with self._changing_deadlines:
                if nack.rejects:
                    await self._transport.reject(deliveries, nack.reason, nack.error)
                else:
                    await self._transport.nack(deliveries, nack.seconds, reason=nack.reason, error=nack.error)
        except Exception as error:  # noqa: BLE001 - whatever it is: they come again when their deadline has passed
            self._log(logging.WARNING, "messages could not be nacked and come again later", len(deliveries), error)

    # Time.

    async def keep(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._clock.sleep_until(self._clock.now_ns() + EXTEND_EVERY_SECONDS * NANOSECONDS)
            try:
                await self.extend()
            except Exception as error:  # noqa: BLE001 - there is another time before the deadline
                self._log(logging.WARNING, "deadlines could not be extended", len(self._held), error)

    async def extend(self) -> None:
        """Gives all that is in our hands more time, and shows a broker whose stream ended that we have it."""
        self._let_go()
        async with self._changing_deadlines:
            deliveries = [held.delivery for held in self._held.values() if not held.let_go]
            if deliveries:
                await self._transport.extend(deliveries, DEADLINE_SECONDS)

    def _let_go(self) -> None:
        """A handler that never ends must not keep its message from everybody for ever."""
        too_old_ns = self._clock.now_ns() - self._max_ns
        for held in self._held.values():
            if held.since_ns <= too_old_ns and not held.let_go:
                held.let_go = True
                log.error(
                    "a message is worked on for too long and may be sent again meanwhile",
                    extra={
                        "fields": {
                            "subscription": self._subscription,
                            "messageId": held.delivery.message.message_id,
                            "max_lease_seconds": self._max_ns / NANOSECONDS,
                        }
                    },
                )

    def _log(self, level: int, text: str, count: int, error: Exception | None = None) -> None:
        fields = {"subscription": self._subscription, "count": count, "error": "" if error is None else str(error)}
        unforeseen = error is not None and not isinstance(error, HoldfastError)
        log.log(level, text, exc_info=error if unforeseen else None, extra={"fields": fields})
