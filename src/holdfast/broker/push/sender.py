"""Sends one push subscription's messages: as many at once as its window, its rate and the shared capacity allow.

A message waits in the durable log, never here: what is not settled when the process ends is sent again by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from holdfast.broker.leases import Failure, Lease, NoHolder
from holdfast.broker.push.answers import (
    STOPPED,
    failure_of,
    is_about_the_message,
    is_acknowledged,
    is_blocked,
    is_unsent,
    result_name,
)
from holdfast.broker.push.attributes import PushLimits, limits_of
from holdfast.broker.push.capacity import SMALL_BYTES, Capacity, Load, Place
from holdfast.broker.push.confirmation import Handshake, has_agreed
from holdfast.broker.push.pace import Rate, Window
from holdfast.broker.push.request import RequestBuilder
from holdfast.broker.push.status import PushCounts, PushStatus
from holdfast.broker.signals import Timers
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.topics import message_number
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput, FailedPrecondition, HoldfastError
from holdfast.model.resources import EndpointConsent, OidcToken, PushConfig, Subscription
from holdfast.outgoing.client import Answer, NoAnswer, OutgoingClient
from holdfast.outgoing.targets import Target, parse_target
from holdfast.settings import PushSettings

log = logging.getLogger("holdfast.broker.push")

# Messages that a subscription sends before the next one has its turn.
TURN_MESSAGES = 16

# A lease outlives its request by this much, so that the request's own end settles it.
LEASE_AFTER_TIMEOUT_SECONDS = 5.0

# A subscription whose messages could not be read is tried again after this long.
PAUSE_AFTER_ERROR_NS = NANOSECONDS

# One whose endpoint lies where requests may not go, after this long.
PAUSE_WHEN_BLOCKED_NS = 10 * NANOSECONDS


class Authorizer(Protocol):
    async def authorization(self, oidc: OidcToken, endpoint: str) -> str:
        """The value of an Authorization header."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """What all senders use."""

    client: OutgoingClient
    tokens: Authorizer
    origin: str  # who sends, as endpoints are told when they are asked to agree
    agreed: Callable[[str, EndpointConsent], Awaitable[object]]
    settings: PushSettings
    capacity: Capacity
    clock: Clock
    timers: Timers
    strict: bool
    ask_for_turn: Callable[[Sender], None]


class Sender:
    def __init__(self, queue: SubscriptionQueue, shared: Shared) -> None:
        self.queue = queue
        self._shared = shared
        self._counts = PushCounts()
        self._load = Load()
        self._requests: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._retired = False
        self._has_turn = False
        self._wants_another = False
        self._not_before_ns = 0  # after trouble of our own
        self._logged: dict[str, tuple[int, int]] = {}  # by status: when it was logged last, and how many since
        self._alarm_ns: int | None = None
        self._configured: Subscription | None = None  # the configuration that the plan was made from
        self._plan: Plan | None = None
        self._misconfigured = ""
        self._handshake = Handshake(shared.client, shared.origin)
        self._rate = Rate(0, 0)
        self._configure()
        queue.changed.listen(self.wake)

    # Taking turns.

    def wake(self) -> None:
        """Something changed: asks for a turn if there may be something to send. Asking twice does no harm."""
        if self._retired:
            return
        if self._has_turn:
            self._wants_another = True
        elif self.queue.has_ready() or self._configured is not self.queue.config:
            self._has_turn = True
            self._shared.ask_for_turn(self)

    async def take_turn(self) -> None:
        """Sends what may go now, at most TURN_MESSAGES, and asks for another turn if more might."""
        self._wants_another = False
        try:
            if not self._retired and await self._send_some():
                self._wants_another = True
        except FailedPrecondition:
            pass  # detached from its topic: there is nothing to send any more
        except Exception as error:  # noqa: BLE001 - this subscription's trouble, which must not end the worker
            self._log(logging.ERROR, "messages could not be read for push", error=str(error))
            self._not_before_ns = self._shared.clock.now_ns() + PAUSE_AFTER_ERROR_NS
            self._wake_at(self._not_before_ns)
        finally:
            self._has_turn = False
            if self._wants_another:
                self.wake()

    async def _send_some(self) -> bool:
        """True when there may be more to send at once."""
        if self._configured is not self.queue.config:
            self._configure()
        plan = self._plan
        if plan is None or not self._may_send_to(plan):
            return False
        room, room_bytes = self._room(plan.window)
        if room <= 0 or not self.queue.has_ready():
            return False
        leases = await self.queue.take(room, room_bytes, NoHolder(), plan.timeout_seconds + LEASE_AFTER_TIMEOUT_SECONDS)
        if self._retired:
            self.queue.give_back(leases)
            return False
        self._rate.took(len(leases))
        for lease in leases:
            self._start(lease, plan)
        return bool(leases)

    def _room(self, window: Window) -> tuple[int, int]:
        """How many messages and bytes may go now. Where that is none, it has been arranged to be woken."""
        now_ns = self._shared.clock.now_ns()
        not_before_ns = max(window.paused_until_ns, self._not_before_ns)
        if not_before_ns > now_ns:
            self._wake_at(not_before_ns)
            return 0, 0
        room = min(window.size - window.in_flight, TURN_MESSAGES)
        if room <= 0:
            return 0, 0  # the next answer wakes it
        free, free_bytes = self._shared.capacity.room(self._load)
        if free <= 0 or free_bytes <= 0:
            self._shared.capacity.tell_when_free(self.wake)
            return 0, 0
        allowed = self._rate.room(now_ns, min(room, free))
        if allowed <= 0:
            self._wake_at(self._rate.next_ns())
        return allowed, free_bytes

    def _wake_at(self, when_ns: int) -> None:
        if self._alarm_ns is None or when_ns < self._alarm_ns:
            self._alarm_ns = when_ns
            self._shared.timers.at(when_ns, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm_ns = None
        self.wake()

    # One message.

    def _start(self, lease: Lease, plan: Plan) -> None:
        plan.window.in_flight += 1
        self._spawn(self._send(lease, plan, self._shared.capacity.take(self._load)))

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    async def _send(self, lease: Lease, plan: Plan, place: Place) -> None:
        sent_in_round, started = plan.window.round, perf_counter()
        try:
            size = plan.builder.size(lease.body)
            if not await self._shared.capacity.take_bytes(place, size, plan.timeout_seconds):
                raise _NotSent("large messages to other endpoints take all memory that there is for them")
            if size > SMALL_BYTES:  # it may have waited
                self.queue.extend([lease.ack_id], plan.timeout_seconds + LEASE_AFTER_TIMEOUT_SECONDS)
            authorization = ""
            if plan.push.oidc is not None:
                authorization = await self._authorization(plan.push.oidc, plan.push.endpoint)
            request = plan.builder.build(lease.body, lease.attempt, authorization, self.queue.context_of(lease))
            result = await self._shared.client.send(plan.target, request, plan.timeout_seconds)
            self._settle(lease, plan.window, result, sent_in_round, perf_counter() - started)
        except asyncio.CancelledError:  # stopping: the endpoint may or may not have it, so it counts as an attempt
            self._cut_off(lease, perf_counter() - started)
            raise
        except _NotSent as error:
            self._not_sent(lease, str(error))
        except Exception as error:
            log.exception("a push request could not be made")
            plan.window.failed(sent_in_round, self._shared.clock.now_ns())
            self._fail(lease, Failure(error=str(error), status="error"), "error", perf_counter() - started)
        finally:
            plan.window.in_flight -= 1
            self._shared.capacity.give_back(place)
            self.wake()

    async def _authorization(self, oidc: OidcToken, endpoint: str) -> str:
        try:
            return await self._shared.tokens.authorization(oidc, endpoint)
        except HoldfastError as error:  # the key could not be kept: the disk is full, say
            raise _NotSent(str(error)) from error

    def _cut_off(self, lease: Lease, seconds: float) -> None:
        """By our own stop: an attempt, but never the last one."""
        self._counts.count("stopped", STOPPED.status, STOPPED.error, seconds, self._shared.clock.now_ns())
        self.queue.put_off(lease, STOPPED)

    def _not_sent(self, lease: Lease, error: str, pause_ns: int = PAUSE_AFTER_ERROR_NS) -> None:
        """Nothing left this machine, for a reason of our own: that must not cost the message an attempt, and in the end
        its place in the subscription."""
        now_ns = self._shared.clock.now_ns()
        if self._not_before_ns <= now_ns:
            self._log(logging.ERROR, "messages could not be pushed", error=error)
        self._not_before_ns = now_ns + pause_ns
        self.queue.give_back([lease])

    def _settle(
        self, lease: Lease, window: Window, result: Answer | NoAnswer, sent_in_round: int, seconds: float
    ) -> None:
        """`window` is the one it was sent under: the endpoint may have changed since."""
        now_ns = self._shared.clock.now_ns()
        if is_acknowledged(result):
            assert isinstance(result, Answer)
            window.succeeded()
            if self.queue.holds(lease):  # else a seek has opened the message again meanwhile
                self.queue.ack_later([lease.ack_id])
            self._counts.count("acknowledged", str(result.status), "", seconds, now_ns)
            return
        failure = failure_of(result, strict=self._shared.strict, now_ns=now_ns)
        if is_unsent(result):
            self._counts.count(result_name(result), failure.status, failure.error, seconds, now_ns)
            self._not_sent(lease, failure.error, PAUSE_WHEN_BLOCKED_NS if is_blocked(result) else PAUSE_AFTER_ERROR_NS)
            return
        if not failure.dead_letter_now and not is_about_the_message(result):
            window.failed(sent_in_round, now_ns)
        self._fail(lease, failure, result_name(result), seconds)

    def _fail(self, lease: Lease, failure: Failure, result: str, seconds: float) -> None:
        now_ns = self._shared.clock.now_ns()
        self._counts.count(result, failure.status, failure.error, seconds, now_ns)
        self._log_failure(lease, failure, now_ns)
        most = self._shared.settings.drop_after_attempts
        if most and self.queue.config.dead_letter is None and lease.attempt >= most + self.queue.more_attempts:
            self._drop(lease, failure)
        else:
            self.queue.fail(lease, failure)

    def _log_failure(self, lease: Lease, failure: Failure, now_ns: int) -> None:
        """One line a second for each status: an endpoint that is down must not fill the disk."""
        logged_ns, left_out = self._logged.get(failure.status, (0, 0))
        if now_ns - logged_ns < NANOSECONDS:
            self._logged[failure.status] = (logged_ns, left_out + 1)
            return
        self._logged[failure.status] = (now_ns, 0)
        self._log(
            logging.WARNING,
            "push failed",
            deliveryAttempt=lease.attempt,
            status=failure.status,
            error=failure.error,
            deadLetterNow=failure.dead_letter_now,
            notLogged=left_out or None,
        )

    def _drop(self, lease: Lease, failure: Failure) -> None:
        self._counts.dropped += 1
        self._log(
            logging.ERROR,
            "message dropped after its attempts, as broker.push.drop_after_attempts asks",
            messageId=str(message_number(self.queue.topic.key, lease.sequence)),
            attempts=lease.attempt,
        )
        self.queue.drop(lease, failure)

    # The subscription.

    def _configure(self) -> None:
        """Takes over the subscription's configuration. A new endpoint starts with a new window."""
        before, config = self._plan, self.queue.config
        self._configured = config
        self._plan = None
        self._misconfigured = ""
        if config.push is None:  # it is being turned into a pull subscription
            return
        try:
            self._plan = plan = Plan.of(config, config.push, self._shared.settings, before)
        except BadInput as error:  # made by an older version that checked less
            self._misconfigured = str(error)
            self._log(logging.ERROR, "a push subscription cannot be served", error=str(error))
            return
        if before is None or plan.window is not before.window:
            self._handshake = Handshake(self._shared.client, self._shared.origin)
        self._set_rate(plan)

    def _set_rate(self, plan: Plan) -> None:
        """The owner's rate or the endpoint's own, whichever is lower."""
        consent = plan.config.consent if has_agreed(plan.config) else None
        rates = [plan.limits.per_second, consent.per_second if consent else 0.0]
        per_second = min([rate for rate in rates if rate], default=0.0)
        if per_second != self._rate.per_second:
            self._rate = Rate(per_second, self._shared.clock.now_ns())

    def _may_send_to(self, plan: Plan) -> bool:
        """Where the endpoint has yet to agree, it is asked."""
        if not plan.limits.confirm or has_agreed(plan.config):
            return True
        not_before_ns = max(self._handshake.not_before_ns, self._not_before_ns)
        if not_before_ns > self._shared.clock.now_ns():
            self._wake_at(not_before_ns)
        elif self._asking is None:
            self._asking = self._spawn(self._ask(plan))
        return False

    async def _ask(self, plan: Plan) -> None:
        try:
            now_ns = self._shared.clock.now_ns()
            consent = await self._handshake.ask(plan.push.endpoint, plan.target, plan.timeout_seconds, now_ns)
            if consent is not None:
                await self._shared.agreed(plan.config.name, consent)
            else:
                self._log(logging.WARNING, "endpoint not confirmed", error=self._handshake.error)
        except Exception as error:  # noqa: BLE001 - the disk is full, say: its agreement was not kept, so it is asked again
            self._log(logging.ERROR, "an endpoint's agreement could not be kept", error=str(error))
            self._handshake.failed(str(error), self._shared.clock.now_ns())
        finally:
            self._asking = None
            self.wake()

    def retire(self) -> None:
        """Sends nothing more. Requests under way end by themselves and still count."""
        self._retired = True
        self.queue.changed.unlisten(self.wake)

    @property
    def is_busy(self) -> bool:
        return bool(self._requests)

    async def finish(self, grace_seconds: float) -> int:
        """Waits for what is under way, not longer than that. Gives how many requests were cut off."""
        late: set[asyncio.Task[None]] = set()
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=grace_seconds)
            for request in late:
                request.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        return len(late)

    def status(self) -> PushStatus:
        outlook, counts = self.queue.outlook(), self._counts
        return PushStatus(
            subscription=self.queue.config.name,
            endpoint=self.queue.config.push.endpoint if self.queue.config.push else "",
            state=self._state(),
            window=self._plan.window.size if self._plan else 0,
            in_flight=self._load.requests,
            due=outlook.due,
            oldest_due_ns=outlook.oldest_due_ns,
            waiting=outlook.waiting,
            next_due_ns=outlook.next_due_ns,
            last_status=counts.last_status,
            last_error=self._misconfigured or self._handshake.error or counts.last_error,
            last_attempt_ns=counts.last_attempt_ns,
            dropped=counts.dropped,
            attempts=dict(counts.attempts),
            latency_buckets=tuple(counts.latency_buckets),
            latency_seconds=counts.latency_seconds,
            pause=self.queue.pause,
        )

    def _state(self) -> str:
        if self._retired:
            return "stopped"
        if self._misconfigured:
            return "misconfigured"
        if self._plan and self._plan.limits.confirm and not has_agreed(self._plan.config):
            return "unconfirmed"
        if self.queue.pause:
            return "paused"
        pauses_until_ns = self._plan.window.paused_until_ns if self._plan else 0
        if max(pauses_until_ns, self._not_before_ns) > self._shared.clock.now_ns():
            return "paused"
        return "sending" if self._load.requests else "idle"

    def _log(self, level: int, text: str, **fields: object) -> None:
        log.log(level, text, extra={"fields": {"subscription": self.queue.config.name, **fields}})


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription's configuration, made ready for sending."""

    config: Subscription
    push: PushConfig
    target: Target
    builder: RequestBuilder
    limits: PushLimits
    window: Window
    timeout_seconds: float

    @classmethod
    def of(cls, config: Subscription, push: PushConfig, settings: PushSettings, before: Plan | None) -> Plan:
        """The window of the plan before goes on, unless the endpoint is another."""
        target = parse_target("push_config.push_endpoint", push.endpoint)
        limits = limits_of(push, settings)
        if before is not None and before.push.endpoint == push.endpoint:
            window = before.window
            window.limit(limits.concurrency)
        else:
            window = Window(limits.concurrency, settings.longest_pause_seconds)
        timeout_seconds = min(settings.timeout_seconds, config.ack_deadline_seconds)
        return cls(config, push, target, RequestBuilder(config, push, target), limits, window, timeout_seconds)


class _NotSent(Exception):
    """A request could not be made, for a reason of our own."""
