"""Push delivery as a whole: a sender for each push subscription there is, and workers that give them their turns.

A worker takes the sender whose turn it is, lets it send a few messages and goes on to the next; it never waits for an
answer. So every subscription gets its share, and an endpoint that hangs holds nothing but its own window.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from urllib.parse import urlsplit

from holdfast.broker.push.capacity import Capacity
from holdfast.broker.push.sender import Authorizer, Sender, Shared
from holdfast.broker.push.status import PushStatus
from holdfast.broker.service import Broker
from holdfast.broker.signals import Timers
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.clock import Clock
from holdfast.model.resources import EndpointConsent, Subscription
from holdfast.outgoing.client import OutgoingClient
from holdfast.settings import PushSettings

log = logging.getLogger("holdfast.broker.push")

WORKERS_PER_CORE = 2


class PushDelivery:
    """Works from `start` to `stop`. `issuer` is the URL that the broker is known by."""

    def __init__(
        self,
        broker: Broker,
        client: OutgoingClient,
        tokens: Authorizer,
        issuer: str,
        settings: PushSettings,
        clock: Clock,
        *,
        strict: bool,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._timers = Timers(clock)
        self._turns: asyncio.Queue[Sender] = asyncio.Queue()
        self._senders: dict[SubscriptionQueue, Sender] = {}
        self._retired: list[Sender] = []  # no push subscriptions any more, with requests that still run
        self._tasks: list[asyncio.Task[None]] = []
        self._shared = Shared(
            client=client,
            tokens=tokens,
            origin=urlsplit(issuer).netloc,
            agreed=self._agreed,
            settings=settings,
            capacity=Capacity(settings.max_requests),
            clock=clock,
            timers=self._timers,
            strict=strict,
            ask_for_turn=self._turns.put_nowait,
        )

    def start(self) -> None:
        workers = self._settings.workers or WORKERS_PER_CORE * (os.cpu_count() or 1)
        self._tasks = [asyncio.create_task(self._watch())]
        self._tasks += [asyncio.create_task(self._work()) for _ in range(workers)]

    async def stop(self) -> None:
        """No new requests; running ones get a bounded time. What is left is in the log and goes on after a restart."""
        for sender in self._senders.values():
            sender.retire()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        senders = [*self._senders.values(), *self._retired]
        cut_off = await asyncio.gather(*(sender.finish(self._settings.grace_seconds) for sender in senders))
        self._timers.stop()
        self._shared.capacity.stop()
        self._log_what_is_left(sum(cut_off))

    def status(self) -> list[PushStatus]:
        """Of every push subscription, by name."""
        return [sender.status() for _, sender in sorted(self._senders.items(), key=lambda item: item[0].config.name)]

    async def _watch(self) -> None:
        """Keeps a sender for every push subscription, as they come and go."""
        while True:
            seen = self._broker.subscriptions_changed.version
            wanted = {queue for queue in self._broker.queues if queue.config.push}
            for queue in self._senders.keys() - wanted:
                sender = self._senders.pop(queue)
                sender.retire()
                self._retired.append(sender)
            self._retired = [sender for sender in self._retired if sender.is_busy]
            for queue in wanted - self._senders.keys():
                self._senders[queue] = sender = Sender(queue, self._shared)
                sender.wake()
            await self._broker.subscriptions_changed.wait_beyond(seen)

    async def _work(self) -> None:
        while True:
            sender = await self._turns.get()
            await sender.take_turn()
            await asyncio.sleep(0)  # where a thousand wait for their turn, everybody else must have theirs too

    async def _agreed(self, subscription: str, consent: EndpointConsent) -> Subscription:
        return await self._broker.update_subscription(subscription, lambda config: replace(config, consent=consent))

    def _log_what_is_left(self, cut_off: int) -> None:
        found = [sender.queue.outlook() for sender in self._senders.values()]
        fields = {
            "requestsCutOff": cut_off,
            "messagesDue": sum(outlook.due for outlook in found),
            "messagesWaiting": sum(outlook.waiting for outlook in found),
        }
        if any(fields.values()):
            log.info("push stopped; what is left goes on after the next start", extra={"fields": fields})
