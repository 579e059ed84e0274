"""Tells the receivers: takes alerts in durably, gathers them, sends, and tries again until they are told.

Each receiver has a task of its own, so that one that hangs does not keep the others waiting. What a killed process had
not told, or could not note as told, the next one tells, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import replace

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.ledger import Changes, Group, Ledger, LedgerStore, Notice, Sending
from holdfast.alerts.notify.notification import TEST, Notification
from holdfast.alerts.notify.outbox import NewId, Outbox, new_id
from holdfast.alerts.notify.receiver import Rate, Receiver
from holdfast.alerts.notify.silences import Quiet, QuietTime, Silence
from holdfast.alerts.notify.tally import Tally
from holdfast.alerts.selector import Matcher
from holdfast.backoff import Spread, backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import HoldfastError, NotFound
from holdfast.metrics.metric import Family

log = logging.getLogger("holdfast.alerts")

# The wait after a failure, in seconds. Who refuses needs a person, and that takes longer.
SHORTEST_WAIT, LONGEST_WAIT = 5.0, 300.0
SHORTEST_WAIT_REFUSED, LONGEST_WAIT_REFUSED = 60.0, 900.0

# A receiver may put us off for no longer.
LONGEST_RETRY_AFTER = 3600.0

# What ended longer ago is forgotten, and so are silences.
HISTORY_DAYS = 30
_DAY_NS = 24 * 3600 * NANOSECONDS

# Where nothing is due.
IDLE_SECONDS = 3600


class Notifier:
    """An AlertSink. `resume` comes first, then `run`."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        quiet_times: Sequence[QuietTime],
        store: LedgerStore,
        clock: Clock,
        *,
        make_id: NewId = new_id,
        spread: Spread = random.random,
    ) -> None:
        self.receivers = {one.name: one for one in receivers}
        self.quiet_times = quiet_times
        self.tally = Tally()
        self._store = store
        self._clock = clock
        self._make_id = make_id
        self._spread = spread
        self._changing = asyncio.Lock()
        self._awake = {name: asyncio.Event() for name in self.receivers}
        self._rates = {one.name: Rate(one.per_minute) for one in receivers}
        self._not_before_ns = dict.fromkeys(self.receivers, 0)
        self.ledger: Ledger
        self._outboxes: dict[str, Outbox]

    async def resume(self) -> None:
        """With what the process before this one knew. A receiver that is new hears of what fires already."""
        self.ledger = Ledger(await self._store.load())
        self._outboxes = {one.name: Outbox(one, self.ledger, self._make_id) for one in self.receivers.values()}
        gone = self.ledger.without(self.receivers)
        lost = {receiver for receiver, _ in gone.notices}
        if lost:
            log.warning(
                "receivers of alerts are gone from the settings, with what they were still to be told",
                extra={"fields": {"receivers": ", ".join(sorted(lost))}},
            )
        await self._change(gone)
        changes = Changes()
        for alert_id, alert in self.ledger.alerts.items():
            self._announce(alert_id, alert, changes)
        await self._change(changes)
        await self._change(self.ledger.all_due(self._clock.now_ns()))  # settings, and with them waits, may be others

    # Taking in.

    async def accept(self, alerts: Sequence[Alert]) -> None:
        async with self._changing:
            changes = Changes()
            open_ids = self.ledger.open_ids()
            for alert in alerts:
                known = open_ids.get(alert.key)
                if alert.ended_at_ns is None and known is None:
                    known = open_ids[alert.key] = self.ledger.last_alert_id + len(changes.alerts) + 1
                    changes.alerts[known] = alert
                    self._announce(known, alert, changes)
                elif alert.ended_at_ns is not None and known is not None:
                    began = changes.alerts.get(known) or self.ledger.alerts[known]
                    changes.alerts[known] = replace(began, ended_at_ns=alert.ended_at_ns)
                    del open_ids[alert.key]
                    self._touch(known, changes)
            await self._save(changes)
        self._wake_all()

    def _announce(self, alert_id: int, alert: Alert, changes: Changes) -> None:
        """To the receivers that want to hear of it and do not know yet."""
        for receiver in self.receivers.values() if alert.ended_at_ns is None else ():
            if receiver.wants(alert) and (receiver.name, alert_id) not in self.ledger.notices:
                group = self._touched(receiver.name, None, alert, changes)
                changes.notices[receiver.name, alert_id] = Notice(receiver.name, alert_id, group.key)

    def _touch(self, alert_id: int, changes: Changes) -> None:
        for name in self.receivers:
            notice = changes.notices.get((name, alert_id)) or self.ledger.notices.get((name, alert_id))
            if notice is not None:
                self._touched(name, notice.group, changes.alerts[alert_id], changes)

    def _touched(self, name: str, key: str | None, alert: Alert, changes: Changes) -> Group:
        outbox = self._outboxes[name]
        key = outbox.key_of(alert) if key is None else key
        before = changes.groups.get((name, key)) or self.ledger.groups.get((name, key))
        group = changes.groups[name, key] = outbox.touched(before, alert, self._clock.now_ns())
        return group

    # Silences.

    async def silence(
        self, matchers: tuple[Matcher, ...], starts_ns: int, ends_ns: int, author: str, comment: str
    ) -> Silence:
        async with self._changing:
            number = self.ledger.last_silence_id + 1
            made = Silence(number, matchers, starts_ns, ends_ns, author, comment, self._clock.now_ns())
            await self._save_silence(made)
        return made

    async def unsilence(self, number: int) -> Silence:
        """Ends it now; one that has not begun never does. NotFound for one that there is not."""
        async with self._changing:
            known = self.ledger.silences.get(number)
            if known is None:
                raise NotFound(f"there is no silence {number}")
            now_ns = self._clock.now_ns()
            if known.ends_ns > now_ns:
                known = replace(known, starts_ns=min(known.starts_ns, now_ns), ends_ns=now_ns)
                await self._save_silence(known)
        return known

    async def _save_silence(self, silence: Silence) -> None:
        changes = self.ledger.all_due(self._clock.now_ns())
        changes.silences[silence.id] = silence
        await self._save(changes)
        self._wake_all()

    @property
    def quiet(self) -> list[Quiet]:
        return [*self.quiet_times, *self.ledger.silences.values()]

    # Sending.

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_forgetting())
            for name in self.receivers:
                tasks.create_task(self._serve(name))

    async def _serve(self, name: str) -> None:
        while True:
            self._awake[name].clear()
            try:
                next_ns = await self.turn(name)
            except HoldfastError as error:
                log.error("alerts could not be sent", extra={"fields": {"receiver": name, "error": str(error)}})
                next_ns = self._clock.now_ns() + round(SHORTEST_WAIT * NANOSECONDS)
            except Exception:  # whatever it is, the next alert must have its chance
                log.exception("alerts could not be sent to %s", name)
                next_ns = self._clock.now_ns() + round(SHORTEST_WAIT * NANOSECONDS)
            await self._sleep_until(name, next_ns)

    async def turn(self, name: str) -> int:
        """Sends what is due to this receiver. Gives when something may be due again."""
        for sending in sorted(self.ledger.sendings_of(name), key=lambda one: one.notification.created_ns):
            if sending.next_try_ns <= self._clock.now_ns() >= self._not_before_ns[name]:
                await self._try(sending)
        while self._clock.now_ns() >= self._not_before_ns[name]:
            made = await self._next_sending(name)
            if made is None:
                break
            await self._try(made)
        return self._next_ns(name)

    async def _next_sending(self, name: str) -> Sending | None:
        """It is on disk before it is sent, so that it has the same id and the same words whenever it is sent again."""
        receiver, outbox, rate = self.receivers[name], self._outboxes[name], self._rates[name]
        async with self._changing:
            now_ns, quiet = self._clock.now_ns(), self.quiet
            with_news: list[Group] = []
            idle = Changes()
            for group in outbox.due(now_ns):
                changes = outbox.idle_changes(group, quiet, now_ns)
                if changes is None:
                    with_news.append(group)
                else:
                    idle.notices |= changes.notices
                    idle.groups |= changes.groups
                    self.tally.silenced(name, outbox.held_back(group, quiet, now_ns))
            await self._save(idle)
            room = rate.room(now_ns)
            if not with_news or room <= 0:
                return None
            together = with_news if receiver.joins and len(with_news) > room else with_news[:1]
            sending, changes = outbox.make(together, quiet, now_ns)
            await self._save(changes)
            rate.take(now_ns)
            return sending

    async def _try(self, sending: Sending) -> None:
        receiver = self.receivers[sending.receiver]
        result = await _sent(receiver, sending.notification)
        now_ns = self._clock.now_ns()
        if result is None:
            self.tally.sent(receiver.name, now_ns)
            await self._settle(sending, now_ns)
            return
        self.tally.failed(receiver.name, result, now_ns)
        fields = {"receiver": receiver.name, "notification": sending.id, "error": result.error}
        if now_ns - sending.notification.created_ns >= receiver.give_up * NANOSECONDS:
            about = {"title": sending.notification.title, "tries": sending.failures + 1}
            log.critical("nobody was told of alerts: given up", extra={"fields": {**fields, **about}})
            self.tally.gave_up(receiver.name)
            await self._settle(sending, now_ns)
            return
        wait_ns = round(self._wait_seconds(sending, result) * NANOSECONDS)
        level = logging.ERROR if result.refused else logging.WARNING
        told = {**fields, "retry_in_seconds": round(wait_ns / NANOSECONDS, 1)}
        log.log(level, "alerts are refused" if result.refused else "alerts could not be sent", extra={"fields": told})
        if not result.refused:  # it is not about this notification, so the others need not be tried either
            self._not_before_ns[receiver.name] = now_ns + wait_ns
        failed = replace(sending, failures=sending.failures + 1, next_try_ns=now_ns + wait_ns, error=result.error)
        await self._change(Changes(sendings={sending.id: failed}))

    def _wait_seconds(self, sending: Sending, result: NotSent) -> float:
        bounds = (SHORTEST_WAIT_REFUSED, LONGEST_WAIT_REFUSED) if result.refused else (SHORTEST_WAIT, LONGEST_WAIT)
        wait = backoff_seconds(*bounds, sending.failures + 1, self._spread)
        return max(wait, min(result.retry_after or 0.0, LONGEST_RETRY_AFTER))

    async def _settle(self, sending: Sending, now_ns: int) -> None:
        async with self._changing:
            await self._save(self._outboxes[sending.receiver].sent(sending, self.quiet, now_ns))

    async def test(self, name: str, alert: Alert) -> NotSent | None:
        """Sends this one alert at once, past groups and silences. NotFound for a receiver that there is not."""
        if name not in self.receivers:
            known = ", ".join(self.receivers) or "none"
            raise NotFound(f"there is no receiver {name}; the settings have: {known}")
        now_ns = self._clock.now_ns()
        key = f"{self._outboxes[name].key_of(alert)}-test-{now_ns}"
        labels = self.receivers[name].group_of(alert)
        made = Notification(
            self._make_id(), name, TEST, key, labels, 0, 1, [replace(alert, ended_at_ns=now_ns)], now_ns
        )
        return await _sent(self.receivers[name], made)

    def waiting(self, name: str) -> int:
        """Groups of which the receiver has yet to be told, although it is time."""
        now_ns, outbox, quiet = self._clock.now_ns(), self._outboxes[name], self.quiet
        under_way = {key for one in self.ledger.sendings_of(name) for key in one.groups}
        return len(under_way) + sum(outbox.idle_changes(one, quiet, now_ns) is None for one in outbox.due(now_ns))

    def families(self) -> list[Family]:
        return self.tally.families({name: self.waiting(name) for name in self.receivers})

    # When.

    def _next_ns(self, name: str) -> int:
        now_ns = self._clock.now_ns()
        busy = {key for sending in self.ledger.sendings_of(name) for key in sending.groups}
        due = [one.next_try_ns for one in self.ledger.sendings_of(name)]
        fresh = [one.due_ns for one in self.ledger.groups_of(name) if one.key not in busy]
        rate = self._rates[name]
        if fresh and rate.room(now_ns) <= 0:
            fresh = [max(min(fresh), rate.next_ns)]
        next_ns = min([*due, *fresh], default=now_ns + IDLE_SECONDS * NANOSECONDS)
        return max(next_ns, self._not_before_ns[name])

    async def _sleep_until(self, name: str, when_ns: int) -> None:
        woken = asyncio.ensure_future(self._awake[name].wait())
        slept = asyncio.ensure_future(self._clock.sleep_until(when_ns))
        try:
            await asyncio.wait({woken, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            slept.cancel()

    def _wake_all(self) -> None:
        for awake in self._awake.values():
            awake.set()

    async def _keep_forgetting(self) -> None:
        while True:
            try:
                await self._forget()
            except HoldfastError as error:
                log.warning("old alerts could not be forgotten: %s", error)
            except Exception:  # it must not take the receivers with it
                log.exception("old alerts could not be forgotten")
            await self._clock.sleep_until(self._clock.now_ns() + _DAY_NS)

    async def _forget(self) -> None:
        before_ns = self._clock.now_ns() - HISTORY_DAYS * _DAY_NS
        async with self._changing:
            over = [one.id for one in self.ledger.silences.values() if one.ends_ns < before_ns]
            await self._save(Changes(silences=dict.fromkeys(over)))
            await self._store.forget(before_ns)

    # Keeping.

    async def history(self, most: int, before_id: int | None = None) -> list[tuple[int, Alert]]:
        return await self._store.history(most, before_id)

    async def _change(self, changes: Changes) -> None:
        async with self._changing:
            await self._save(changes)

    async def _save(self, changes: Changes) -> None:
        """First on disk, then in memory: where it fails, nothing has changed."""
        if changes:
            await self._store.save(changes)
            self.ledger.apply(changes)


async def _sent(receiver: Receiver, notification: Notification) -> NotSent | None:
    try:
        return await receiver.channel.send(notification)
    except Exception as error:  # a fault of ours, with this one: the others must have their chance
        log.exception("alerts could not be sent to %s", receiver.name)
        return NotSent(f"unexpected {type(error).__name__}; the log has the details", refused=True)
