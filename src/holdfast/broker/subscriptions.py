"""One subscription's queue: who holds which message until when, and how each delivery ends.

    new ──take──▶ leased ──ack──▶ settled
                  │    ▲
     nack, expiry │    │ take, once due
                  ▼    │
                 waiting ──attempts spent, or told so──▶ dead letter committed ──▶ settled

Everything here runs on the event loop; the log is told of changes in groups. A message's attempt number never goes
back: it is one more than the failed attempts that the log keeps. Which message comes next is backlog.py's to say.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from holdfast.backoff import backoff_seconds
from holdfast.broker.backlog import Backlog, Outlook
from holdfast.broker.breaker import Breaker, Pause
from holdfast.broker.counts import DeliveryCounts
from holdfast.broker.facts import Fact, FactWriter, What
from holdfast.broker.held import NEVER_NS, HeldMessage, Replacement, holds
from holdfast.broker.leases import LEASE_RAN_OUT, NACKED, Failure, Holder, Lease, format_ack_id, parse_ack_id
from holdfast.broker.log import AddFacts, Change, MessageLog, Progress, Reset, StoredMessage
from holdfast.broker.progress import SettledMessages
from holdfast.broker.shared_save import SharedSave
from holdfast.broker.signals import Signal, Timers
from holdfast.broker.standing import Standing, State
from holdfast.broker.topics import TopicLog, message_number
from holdfast.broker.wire import decode
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput, FailedPrecondition, StorageUnavailable
from holdfast.model.resources import RetryPolicy, Subscription
from holdfast.settings import BrokerSettings

log = logging.getLogger("holdfast.broker")

# Leases are looked at no more often than this: a deadline is a promise not to redeliver earlier, not an alarm clock.
EXPIRY_STEP_NS = NANOSECONDS // 10

# After the log refused our progress, it is offered again after this time.
SAVE_AGAIN_NS = NANOSECONDS

# Acks that nobody waits for are saved this much later, many at once: an fsync for each would stand in the way of
# publishes. A crash within that time means some messages come again, as at-least-once delivery allows.
SAVE_LATER_NS = NANOSECONDS // 50

# The longest backoff that a subscription may have, and the longest Retry-After that is heeded.
LONGEST_WAIT_NS = 600 * NANOSECONDS

DeadLetter = Callable[[Subscription, Lease, Failure], Awaitable[None]]


class SubscriptionQueue:
    def __init__(
        self,
        key: int,
        config: Subscription,
        topic: TopicLog,
        progress: Progress,
        log: MessageLog,
        clock: Clock,
        timers: Timers,
        dead_letter: DeadLetter,
        settings: BrokerSettings,
        facts: FactWriter,
        replacements: Sequence[Replacement] = (),
    ) -> None:
        self.key = key
        self.config = config
        self.topic = topic
        self.changed = Signal()
        self.counts = DeliveryCounts()
        self.deleted = False
        self.last_used_ns = clock.now_ns()
        self._log = log
        self._clock = clock
        self._timers = timers
        self._dead_letter = dead_letter
        self._settings = settings
        self._facts = facts
        self._unsaved_facts: list[Fact] = []
        self._replacements = list(replacements)
        # Under way, by sequence; and those whose dead letter is being committed, which nobody may take meanwhile.
        self._leases: dict[int, Lease] = {}
        self._by_ack_id: dict[str, Lease] = {}
        self._leaving: set[int] = set()
        self._breaker = Breaker(config, settings, clock)
        self._backlog = self._backlog_of(progress, replacements)
        self._taking = asyncio.Lock()
        self._committing = asyncio.Lock()
        # Ack ids of an earlier process must not equal new ones, so the count starts from the time.
        self._nonces = itertools.count(clock.now_ns())
        # Exactly-once: what was acked but is not on disk yet. The same ack, sent again, is still a good one.
        self._unsaved_acks: set[str] = set()
        self._armed_ns: int | None = None
        self._timer_times: set[int] = set()
        self._leases_due_ns: int | None = None  # when they must be looked at next
        self._saves = SharedSave(self._commit, self._spawn)
        self._saves_later = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._free_what_may_not_be_held()
        self._arm_for_waiting()

    @property
    def settled(self) -> SettledMessages:
        return self._backlog.settled

    def _backlog_of(self, progress: Progress, replacements: Sequence[Replacement] = ()) -> Backlog:
        settled = SettledMessages(_within_reach(progress, self._clock.now_ns()))
        return Backlog(self.key, self.config, self.topic, settled, self._clock, self._is_under_way, replacements)

    def _is_under_way(self, sequence: int) -> bool:
        return sequence in self._leases or sequence in self._leaving

    # Taking.

    def has_ready(self) -> bool:
        return self._breaker.room(1) > 0 and self._backlog.has_ready()

    @property
    def pause(self) -> Pause | None:
        """Why nothing is delivered, where that is so."""
        return self._breaker.pause

    @property
    def outstanding(self) -> int:
        return len(self._leases)

    async def look_ahead(self) -> None:
        """So that `open_count` and `first_open` know, where there is a filter."""
        if not self.config.detached:
            await self._backlog.look_ahead()

    def open_count(self) -> int | None:
        """How many messages are not settled, those under way included. None where it is not known."""
        return 0 if self.config.detached else self._backlog.open_count()

    def first_open(self) -> int | None:
        """The first of them, where there is one and it is known."""
        return None if self.config.detached else self._backlog.first_open()

    def standing(self, sequence: int) -> Standing:
        """Of one message, now."""
        failed = self.settled.failed.get(sequence)
        attempts = failed.attempts if failed else 0
        if sequence in self.settled:
            return Standing(State.SETTLED, attempts)
        if sequence in self._leaving:
            return Standing(State.LEAVING, attempts)
        if lease := self._leases.get(sequence):
            return Standing(State.LEASED, lease.attempt, lease.deadline_ns)
        if self._backlog.held.is_held(sequence):
            return Standing(State.HELD, attempts)
        return Standing(State.WAITING, attempts, failed.due_ns) if failed else Standing(State.NEW)

    def leaves_out(self, message: StoredMessage) -> bool:
        """By its filter, or because the message is for another subscription alone."""
        return not self._backlog.is_mine(message)

    def outlook(self) -> Outlook:
        return Outlook(0, None, 0, None) if self.config.detached else self._backlog.outlook()

    async def take(
        self, max_messages: int, max_bytes: int, holder: Holder, deadline_seconds: float | None = None
    ) -> list[Lease]:
        """Leases what can be delivered now, perhaps nothing. At least one message is given whatever max_bytes says,
        or a message larger than a stream's allowance would never be delivered."""
        if self.config.detached:
            raise FailedPrecondition(f"subscription {self.config.name} is detached from its topic")
        self.last_used_ns = self._clock.now_ns()
        seconds = deadline_seconds or self.config.ack_deadline_seconds
        deadline_ns = self.last_used_ns + round(seconds * NANOSECONDS)
        taken: list[Lease] = []
        try:
            async with self._taking:  # reading may wait for the disk: one at a time, or the order would be lost
                max_messages = self._breaker.room(max_messages)
                while len(taken) < max_messages and max_bytes > 0 and not self.deleted:
                    messages = await self._next_messages(max_messages - len(taken), max_bytes)
                    if not messages:
                        break
                    taken += [self._lease(message, deadline_ns, holder) for message in messages]
                    max_bytes -= sum([len(message.body) for message in messages])
        except StorageUnavailable:
            if not taken:
                raise
        except BaseException:  # a cancelled caller, mostly
            self.give_back(taken)
            raise
        if taken:
            self.counts.delivered += len(taken)
            self._look_at_leases(deadline_ns)
        self._arm_for_waiting()  # also when nothing was: what was due may have expired, and others wait behind it
        return taken

    async def _next_messages(self, max_messages: int, max_bytes: int) -> list[StoredMessage]:
        if run := self._backlog.next_run(max_messages, max_bytes):
            return run
        message = await self._backlog.next(new_first=self.pause is not None)
        return [] if message is None else [message]

    async def take_or_wait(
        self, max_messages: int, max_bytes: int, holder: Holder, deadline_seconds: float | None = None
    ) -> list[Lease]:
        """As `take`, but waits until there is at least one. Empty only when the subscription was deleted."""
        while not self.deleted:
            seen = self.changed.version
            taken = await self.take(max_messages, max_bytes, holder, deadline_seconds)
            if taken:
                return taken
            await self.changed.wait_beyond(seen)
        return []

    def _lease(self, message: StoredMessage, deadline_ns: int, holder: Holder) -> Lease:
        failed = self.settled.failed.get(message.sequence)
        attempt = failed.attempts + 1 if failed else 1
        ack_id = format_ack_id(self.key, message.sequence, attempt, next(self._nonces))
        lease = Lease(message.sequence, attempt, ack_id, message.body, deadline_ns, holder)
        self._leases[message.sequence] = lease
        self._by_ack_id[ack_id] = lease
        if self.pause:
            self._breaker.began(lease)
        return lease

    # Ending a delivery.

    def ack_later(self, ack_ids: Sequence[str]) -> None:
        """For callers that do not wait for the disk. Not for exactly-once delivery, which promises that."""
        self.counts.acked += self._settle(self._sequences_of(ack_ids))
        self._save_later()

    def ack(self, ack_ids: Sequence[str]) -> tuple[list[str], asyncio.Future[None]]:
        """Gives the ids that are not good any more, and a future that is done once the acks are on disk.

        Late and double acks are good, as in Pub/Sub; under exactly-once delivery only the ids of current leases are.
        """
        sequences = self._sequences_of(ack_ids)
        stale: list[str] = []
        if self.config.exactly_once:
            now_ns = self._clock.now_ns()
            good = {ack_id for ack_id in ack_ids if self._may_still_ack(ack_id, now_ns)}
            stale = [ack_id for ack_id in ack_ids if ack_id not in good]
            self._unsaved_acks |= good
            sequences = self._sequences_of([ack_id for ack_id in ack_ids if ack_id in good])
        self.counts.acked += self._settle(sequences)
        return stale, self._saves.save()

    def _may_still_ack(self, ack_id: str, now_ns: int) -> bool:
        lease = self._by_ack_id.get(ack_id)
        if lease is not None:
            return lease.deadline_ns > now_ns
        return ack_id in self._unsaved_acks

    def nack(self, ack_ids: Sequence[str], failure: Failure = NACKED) -> list[str]:
        """Gives the ids that are not good any more."""
        leases, stale = self._leases_of(ack_ids)
        for lease in leases:
            self.fail(lease, failure)
        return stale

    def extend(self, ack_ids: Sequence[str], seconds: float, failure: Failure | None = None) -> list[str]:
        """Gives the ids that are not good any more. With a failure it is a nack that counts when the time is over."""
        deadline_ns = self._clock.now_ns() + round(seconds * NANOSECONDS)
        leases, stale = self._leases_of(ack_ids)
        for lease in leases:
            lease.deadline_ns = deadline_ns
            lease.confirmed = True
            lease.failure = failure
        self._look_at_leases(deadline_ns)
        return stale

    def hurry(self, leases: Iterable[Lease], seconds: float) -> None:
        """Makes them end within `seconds`: whoever held them is gone."""
        deadline_ns = self._clock.now_ns() + round(seconds * NANOSECONDS)
        for lease in leases:
            lease.deadline_ns = min(lease.deadline_ns, deadline_ns)
        self._look_at_leases(deadline_ns)

    def fail(self, lease: Lease, failure: Failure) -> None:
        """Counts the attempt and decides: again later, or the dead-letter topic."""
        if not self.holds(lease):
            return
        if failure is LEASE_RAN_OUT:
            self.counts.expired += 1
        else:
            self.counts.nacked += 1
        self._tell_breaker(lease, failure)
        self._end_lease(lease)
        policy = self.config.dead_letter
        if policy and (failure.dead_letter_now or lease.attempt >= policy.max_delivery_attempts + self.more_attempts):
            self._leaving.add(lease.sequence)
            self._spawn(self._give_up(lease, failure))
        else:
            self._try_again_later(lease, failure)

    def _tell_breaker(self, lease: Lease, failure: Failure) -> None:
        was_probe = lease is self._breaker.probe
        if failure.dead_letter_now or failure.about_the_message:
            if self._breaker.succeeded(1, was_probe=was_probe):
                self.changed.fire()
        elif self._breaker.failed(lease.sequence, failure, was_probe=was_probe) and self.pause:
            self._timers.at(self.pause.until_ns, self.changed.fire)

    @property
    def more_attempts(self) -> int:
        """Beyond the policy's, while delivery pauses."""
        return self._breaker.more_attempts

    def put_off(self, lease: Lease, failure: Failure) -> None:
        """Counts the attempt, and never gives up: whatever happened, it was not the subscriber's doing."""
        if self.holds(lease):
            self.counts.nacked += 1
            self._end_lease(lease)
            self._try_again_later(lease, failure)

    def drop(self, lease: Lease, failure: Failure) -> None:
        """It counts as failed, and does not come again."""
        if self.holds(lease):
            self.counts.nacked += 1
            self._tell_breaker(lease, failure)
            self._end_lease(lease)
            self._keep_fact(lease, failure, What.DROPPED)
            self._settle([lease.sequence])
            self._save_later()

    def holds(self, lease: Lease) -> bool:
        """False once it ended: acked, failed, expired, or forgotten by a seek."""
        return self._leases.get(lease.sequence) is lease

    def context_of(self, lease: Lease) -> str:
        """The trace that it is part of, as W3C writes it: none, where nobody makes traces."""
        return ""

    def give_back(self, leases: Iterable[Lease]) -> None:
        """They never reached a consumer: deliverable again at once, and not counted as an attempt."""
        for lease in leases:
            if self.holds(lease):
                self._end_lease(lease)
                self._wait_until(lease.sequence, lease.attempt - 1, self._clock.now_ns())

    async def _give_up(self, lease: Lease, failure: Failure) -> None:
        """The copy on the dead-letter topic is committed before the original is settled: a crash in between can
        double the dead letter, which the desk notices, but never lose it."""
        try:
            await self._dead_letter(self.config, lease, failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not stay between two places
            log.warning(
                "a message could not be dead-lettered and will be tried again",
                extra={"fields": {"subscription": self.config.name, "error": str(error)}},
            )
            self._leaving.discard(lease.sequence)
            self._try_again_later(lease, failure)
            return
        self.counts.dead_lettered += 1
        self._leaving.discard(lease.sequence)
        if self._holds_key_of(lease):
            self._backlog.held.hold(lease.sequence, lease.attempt)
            self.changed.fire()
        else:
            self._settle([lease.sequence])
        await asyncio.shield(self._saves.save())

    def _try_again_later(self, lease: Lease, failure: Failure) -> None:
        due_ns = self._clock.now_ns() + round(self._delay_seconds(lease.attempt, failure) * NANOSECONDS)
        self._keep_fact(lease, failure, What.FAILED)
        self._wait_until(lease.sequence, lease.attempt, due_ns)

    def _keep_fact(self, lease: Lease, failure: Failure, what: What) -> None:
        """Saved with the attempt that it tells of, so that both are there or neither."""
        number = message_number(self.topic.key, lease.sequence)
        self._unsaved_facts += self._facts.ended(number, self.key, lease, failure, what)

    def _wait_until(self, sequence: int, attempts: int, due_ns: int) -> None:
        self._backlog.fail(sequence, attempts, due_ns)
        self._saves.save()

    def _delay_seconds(self, failures: int, failure: Failure) -> float:
        """Without a retry policy a pull subscription redelivers at once, as Pub/Sub does; a push subscription would
        then hammer an endpoint that fails, so it backs off all the same."""
        policy = self.config.retry or (RetryPolicy() if self.config.push else RetryPolicy(0, 0))
        delay = backoff_seconds(policy.minimum_backoff_seconds, policy.maximum_backoff_seconds, failures)
        return max(delay, failure.retry_after_seconds or 0.0)

    def _end_lease(self, lease: Lease) -> None:
        self._breaker.let_go(lease)
        del self._leases[lease.sequence]
        del self._by_ack_id[lease.ack_id]
        lease.holder.released(lease)

    def _settle(self, sequences: Sequence[int]) -> int:
        """Runs of consecutive messages, which is what acks mostly are, are settled as one. Gives how many were not
        settled before."""
        first = last = -1
        acked, late, was_probe = 0, 0, False
        for sequence in sequences:
            if sequence in self._leaving:  # on its way to the dead-letter topic: too late
                continue
            if (lease := self._leases.get(sequence)) is not None:
                acked += 1
                was_probe = was_probe or lease is self._breaker.probe
                self._end_lease(lease)
            elif not first <= sequence <= last and sequence not in self.settled:
                late += 1
            if sequence == last + 1:
                last = sequence
                continue
            if last >= 0:
                self._backlog.settle(first, last)
            first = last = sequence
        if last >= 0:
            self._backlog.settle(first, last)
        goes_on = bool(acked) and self._breaker.succeeded(acked, was_probe=was_probe)
        if self.config.ordered or goes_on:  # the next messages of their keys may go, or all
            self.changed.fire()
        if self._armed_ns is None:  # the one that was due may be among them, and others wait behind it
            self._arm_for_waiting()
        return acked + late

    def _sequences_of(self, ack_ids: Sequence[str]) -> list[int]:
        """Raises BadInput, before anything is changed, when one of them is none of ours."""
        return [
            lease.sequence if (lease := self._by_ack_id.get(ack_id)) is not None else self._parsed_sequence(ack_id)
            for ack_id in ack_ids
        ]

    def _parsed_sequence(self, ack_id: str) -> int:
        """Of a lease that ended, perhaps in an earlier process."""
        parsed = parse_ack_id(ack_id)
        if parsed.subscription_key != self.key or parsed.sequence >= self.topic.visible_end:
            raise BadInput("ack_ids", "an ack id belongs to another subscription")
        return parsed.sequence

    def _leases_of(self, ack_ids: Sequence[str]) -> tuple[list[Lease], list[str]]:
        """Those still held under exactly these ids, and the ids that are stale: an old id must not end a newer
        delivery."""
        self._sequences_of(ack_ids)
        leases = [lease for ack_id in ack_ids if (lease := self._by_ack_id.get(ack_id)) is not None]
        stale = [ack_id for ack_id in ack_ids if ack_id not in self._by_ack_id]
        return leases, stale

    # Ordering keys that are held at a dead-lettered message.

    def _holds_key_of(self, lease: Lease) -> bool:
        return holds(self.config, self._settings) and bool(decode(lease.body).ordering_key)

    def is_open(self, sequence: int) -> bool:
        """Held, or on the way to be: another message may be sent in its place."""
        return holds(self.config, self._settings) and sequence not in self.settled

    def replace(self, replacement: Replacement) -> None:
        self._replacements.append(replacement)
        self._backlog.held.replace(replacement)
        self._saves.save()
        self.changed.fire()

    async def release(self, sequence: int) -> bool:
        """Its key goes on without it. False when it was not held."""
        if not self._backlog.held.is_held(sequence):
            return False
        self._settle([sequence])
        await asyncio.shield(self._saves.save())
        return True

    async def held(self) -> list[HeldMessage]:
        found = [await self.topic.read_one(sequence) for sequence in self._backlog.held.sequences]
        return [self._held_message(message) for message in found if message is not None]

    def _held_message(self, message: StoredMessage) -> HeldMessage:
        parsed = decode(message.body)
        attempts = self.settled.failed[message.sequence].attempts
        return HeldMessage(
            self.config.name,
            parsed.message_id,
            parsed.ordering_key,
            parsed.publish_time_ns,
            attempts,
            self._backlog.waiting_behind(parsed.ordering_key),
        )

    def _free_what_may_not_be_held(self) -> None:
        """The subscription is not, or no longer, one that holds."""
        held = self._backlog.held.sequences
        if held and not holds(self.config, self._settings):
            self._settle(held)
            self._saves.save()

    def forget_replacements(self) -> list[Change]:
        """Gives what to commit then."""
        gone, self._replacements = self._replacements, []
        return [replacement.deleted() for replacement in gone]

    async def _forget_settled_replacements(self) -> None:
        gone = [one for one in self._replacements if one.sequence in self.settled]
        if gone:
            await asyncio.shield(self._saves.save())  # else a crash would find it open, and no longer in its place
            await self._log.commit([one.deleted() for one in gone])
            over = set(gone)  # there may be thousands
            self._replacements = [one for one in self._replacements if one not in over]

    # Time.

    def _arm(self, when_ns: int) -> None:
        if self._armed_ns is None or when_ns < self._armed_ns:
            self._armed_ns = when_ns
            if when_ns not in self._timer_times:  # one that was passed over may still be there
                self._timer_times.add(when_ns)
                self._timers.at(when_ns, partial(self._on_time, when_ns))

    def _arm_for_waiting(self) -> None:
        due_ns = self._backlog.next_due_ns()
        if due_ns is not None:
            self._arm(max(due_ns, self._clock.now_ns()))

    def _look_at_leases(self, when_ns: int) -> None:
        if self._leases_due_ns is None or when_ns < self._leases_due_ns:
            self._leases_due_ns = when_ns
        self._arm(self._leases_due_ns)

    def _on_time(self, when_ns: int) -> None:
        self._timer_times.discard(when_ns)
        if self.deleted or when_ns != self._armed_ns:  # an earlier time took the place of this one
            return
        self._armed_ns = None
        now_ns = self._clock.now_ns()
        if self._leases_due_ns is not None and self._leases_due_ns <= now_ns:
            self._end_expired_leases(now_ns)
        if self._leases_due_ns is not None:
            self._arm(self._leases_due_ns)
        due_ns = self._backlog.next_due_ns()
        if due_ns is not None and due_ns <= now_ns:
            self.changed.fire()
        elif due_ns is not None:
            self._arm(due_ns)

    def _end_expired_leases(self, now_ns: int) -> None:
        self._leases_due_ns = None
        for lease in [lease for lease in self._leases.values() if lease.deadline_ns <= now_ns]:
            self.fail(lease, lease.failure or LEASE_RAN_OUT)
        if self._leases:
            first_ns = min(lease.deadline_ns for lease in self._leases.values())
            self._leases_due_ns = max(first_ns, now_ns + EXPIRY_STEP_NS)

    # The subscription itself.

    def reconfigure(self, config: Subscription) -> None:
        self.config = config
        self._backlog.configure(config)
        self._breaker.configure(config)
        self._free_what_may_not_be_held()
        self.changed.fire()

    async def seek(self, wanted: Callable[[SettledMessages], Progress]) -> None:
        """From now on exactly what `wanted` leaves open is delivered; it is given what is settled now. Deliveries
        under way are forgotten."""
        async with self._taking:
            await self._finish_tasks()
            async with self._committing:  # a save of the old progress must not come after this
                progress = wanted(self.settled)
                await self._log.commit([Reset(self.key, progress), *(one.deleted() for one in self._replacements)])
                self._replacements.clear()
                for lease in list(self._leases.values()):
                    self._end_lease(lease)
                self._unsaved_acks.clear()
                self._backlog = self._backlog_of(progress)
        self.changed.fire()

    async def drop_expired(self) -> None:
        """Settles what is past the subscription's retention, whether or not anybody asks for messages."""
        await self._backlog.drop_expired()
        if self.settled.has_unsaved:
            self._saves.save()
            self.changed.fire()  # followers of an expired message may go
        await self._forget_settled_replacements()

    async def delete(self) -> None:
        self.deleted = True
        for lease in list(self._leases.values()):
            self._end_lease(lease)
        self.changed.fire()
        await self._finish_tasks()

    async def close(self) -> None:
        """Everything decided so far is on disk at return."""
        await self._finish_tasks()
        if self._has_unsaved:
            await asyncio.shield(self._saves.save())

    # Saving.

    @property
    def _has_unsaved(self) -> bool:
        return self.settled.has_unsaved or bool(self._unsaved_facts)

    def _save_later(self) -> None:
        if not self._saves.is_asked_for and not self._saves_later:
            self._saves_later = True
            self._timers.at(self._clock.now_ns() + SAVE_LATER_NS, self._save_now)

    def _save_now(self) -> None:
        self._saves_later = False
        if not self.deleted:
            self._saves.save()

    async def _commit(self) -> Exception | None:
        async with self._committing:
            return await self._commit_unsaved()

    async def _commit_unsaved(self) -> Exception | None:
        settled, acks = self.settled, frozenset(self._unsaved_acks)
        if self.deleted or not self._has_unsaved:
            return None
        change = settled.take_unsaved(self.key)
        facts, self._unsaved_facts = self._unsaved_facts, []
        try:
            await self._log.commit([change, AddFacts(facts)] if facts else [change])
        except Exception as error:
            if not isinstance(error, StorageUnavailable):
                log.exception("the progress of %s could not be saved", self.config.name)
            settled.put_back(change)
            self._unsaved_facts[:0] = facts
            self._timers.at(self._clock.now_ns() + SAVE_AGAIN_NS, self._save_now)
            return error
        self._unsaved_acks -= acks
        if change.failed_set and settled is self.settled:  # no seek meanwhile
            self._backlog.is_saved(change.failed_set)
            self._arm_for_waiting()
        return None

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_tasks(self) -> None:
        # Only those that still run: gathering finished ones may not yield, and then they would never leave the set.
        while running := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*running, return_exceptions=True)


def _within_reach(progress: Progress, now_ns: int) -> Progress:
    """No wait is longer than the longest backoff. What was saved while the machine's clock was ahead would wait until
    the clock is there again."""
    latest_ns = now_ns + LONGEST_WAIT_NS
    failed = {
        sequence: replace(one, due_ns=latest_ns) if latest_ns < one.due_ns < NEVER_NS else one
        for sequence, one in progress.failed.items()
    }
    return replace(progress, failed=failed)
