"""What push promises beyond one message and one answer: pace, fairness, order, limits, consent, stop and restart."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.broker.log import Change, Progress, PutRecord, PutSubscription
from holdfast.broker.push.attributes import CONCURRENCY, CONFIRM, PER_SECOND
from holdfast.broker.service import Broker
from holdfast.broker.wire import decode, encode
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model import dead_letter_attributes as names
from holdfast.model.message import Message
from holdfast.model.resources import (
    DeadLetterPolicy,
    OidcToken,
    PushConfig,
    RetryPolicy,
    Subscription,
    Topic,
)
from holdfast.outgoing.addresses import AddressGuard
from holdfast.settings import BrokerSettings, PushSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.log import SqliteMessageLog
from tests.broker.helpers import DEAD_LETTERS, SUBSCRIPTION, TOPIC, make_dead_letter_topic, publish, take, take_one
from tests.broker.push.pushing import AT_ONCE, Pushing, acked, push_to, pushing
from tests.support.push_endpoint import Endpoint, answering, push_endpoint

ONE = RetryPolicy(1, 1)


@pytest.fixture
async def running() -> AsyncIterator[Pushing]:
    async with pushing(PushSettings(timeout_seconds=0.5)) as found:
        yield found


class Gate:
    """Answers wait until it is opened."""

    def __init__(self, status: int = 204) -> None:
        self._open = asyncio.Event()
        self._status = status

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        await self._open.wait()
        return web.Response(status=self._status)

    def open(self) -> None:
        self._open.set()


async def subscribe(broker: Broker, name: str, url: str) -> str:
    path = f"projects/local/subscriptions/{name}"
    await broker.create_subscription(Subscription(path, TOPIC, push=PushConfig(url), retry=AT_ONCE))
    return path


# Pace.


async def test_the_window_grows_with_success_and_shrinks_with_failure(running: Pushing, endpoint: Endpoint) -> None:
    await push_to(running.broker, endpoint.url, retry=RetryPolicy(600, 600))
    await publish(running.broker, *map(str, range(50)))
    await acked(running.broker, 50)
    assert running.status().window == 54
    endpoint.reply = answering(500)
    for number in range(1, 4):  # one after the other; those of one round would count as one failure
        await publish(running.broker, "x")
        await running.until(lambda status, failed=number: status.attempts.get("status_5xx", 0) == failed)
    assert running.status().window == 54 // 8


async def test_no_more_requests_than_the_window_are_under_way(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = gate = Gate()
    await push_to(running.broker, endpoint.url)
    await publish(running.broker, *map(str, range(50)))
    await running.until(lambda status: status.in_flight == 4)
    await endpoint.wait_for(4)
    assert running.status().due == 46
    gate.open()
    await acked(running.broker, 50)


async def test_an_endpoint_that_keeps_failing_is_paused_and_recovers(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(503)
    await push_to(running.broker, endpoint.url, retry=AT_ONCE)
    await publish(running.broker, *map(str, range(10)))
    paused = await running.until(lambda status: status.state == "paused")
    assert paused.window == 1
    assert paused.last_status == "503"
    assert paused.last_error == "the endpoint answered 503"
    endpoint.reply = None
    await acked(running.broker, 10)


async def test_a_refused_message_says_nothing_against_its_endpoint(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(422)
    await push_to(running.broker, endpoint.url, retry=RetryPolicy(600, 600))
    await publish(running.broker, *map(str, range(20)))
    status = await running.until(lambda status: status.attempts.get("status_4xx", 0) == 20)
    assert status.window == 4


async def test_one_subscription_may_have_a_lower_concurrency(running: Pushing, endpoint: Endpoint) -> None:
    push = PushConfig(endpoint.url, {CONCURRENCY: "2"})
    await push_to(running.broker, endpoint.url, push=push)
    await publish(running.broker, *map(str, range(50)))
    await acked(running.broker, 50)
    assert endpoint.most_at_once <= 2
    assert running.status().window == 2


async def test_one_subscription_may_have_a_rate(running: Pushing, endpoint: Endpoint) -> None:
    """A rate of 50 lets 5 go at once and the 20 others in the 0.4 seconds after."""
    await push_to(running.broker, endpoint.url, push=PushConfig(endpoint.url, {PER_SECOND: "50"}))
    loop = asyncio.get_running_loop()
    started = loop.time()
    await publish(running.broker, *map(str, range(25)))
    await endpoint.wait_for(25)
    assert loop.time() - started >= 0.38


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (CONCURRENCY, "0"),
        (CONCURRENCY, "1.5"),
        (CONCURRENCY, "many"),
        (CONCURRENCY, "nan"),
        (PER_SECOND, "-1"),
        (PER_SECOND, "inf"),
        (CONFIRM, "yes"),
        ("x-holdfast-colour", "red"),
    ],
)
async def test_a_limit_that_is_none_is_refused_by_name(running: Pushing, attribute: str, value: str) -> None:
    with pytest.raises(BadInput, match=attribute):
        await push_to(running.broker, "", push=PushConfig("http://127.0.0.1/", {attribute: value}))


async def test_strict_knows_only_pubsubs_attributes() -> None:
    async with pushing(PushSettings(), strict=True) as strict:
        with pytest.raises(BadInput, match=CONCURRENCY):
            await push_to(strict.broker, "", push=PushConfig("http://127.0.0.1/", {CONCURRENCY: "2"}))


# Fairness.


async def test_a_thousand_subscriptions_each_get_their_share(endpoint: Endpoint) -> None:
    """Long before all is delivered, nobody has nothing."""
    async with pushing(PushSettings(workers=1)) as running:
        await running.broker.create_topic(Topic(TOPIC))
        for number in range(1000):
            await subscribe(running.broker, f"worker-{number}", endpoint.url)
        await publish(running.broker, *map(str, range(8)))
        await endpoint.wait_for(6000)
        served = {envelope["subscription"] for envelope in endpoint.envelopes}
        await endpoint.wait_for(8000)
        assert len(served) == 1000


async def test_a_long_backlog_does_not_keep_a_short_one_waiting(endpoint: Endpoint) -> None:
    async with pushing(PushSettings(workers=1)) as running, push_endpoint() as other:
        await push_to(running.broker, endpoint.url)
        await running.broker.create_topic(Topic("projects/local/topics/other"))
        config = Subscription(
            "projects/local/subscriptions/other", "projects/local/topics/other", push=PushConfig(other.url)
        )
        await publish(running.broker, *map(str, range(2000)))
        await running.broker.create_subscription(config)
        await publish(running.broker, "x", topic="projects/local/topics/other")
        await other.wait_for(1)
        assert len(endpoint.bodies) < 1000
        await acked(running.broker, 2000)


async def test_endpoints_that_hang_leave_room_for_one_that_answers() -> None:
    """Ten of them with wide open windows, and places for sixteen requests in all."""
    gate = Gate()
    async with (
        pushing(PushSettings(timeout_seconds=20, max_requests=16)) as running,
        push_endpoint() as hanging,
        push_endpoint() as good,
    ):
        await running.broker.create_topic(Topic(TOPIC))
        paths = [await subscribe(running.broker, f"hangs-{number}", hanging.url) for number in range(10)]
        await publish(running.broker, *map(str, range(30)))
        await hanging.wait_for(300)
        assert min(running.status(path).window for path in paths) > 16
        hanging.reply = gate
        await publish(running.broker, *map(str, range(30)))
        await hanging.wait_for(310)
        path = await subscribe(running.broker, "good", good.url)
        await publish(running.broker, *map(str, range(20)))
        await good.wait_for(20)
        await running.until(lambda status: status.attempts == {"acknowledged": 20}, path)
        gate.open()


# Order.


async def test_keys_keep_their_order_through_failures(endpoint: Endpoint) -> None:
    fails = iter([False, True, True, False, False, True, False, False, True] * 1000)
    answered: dict[str, list[int]] = defaultdict(list)

    async def flaky(request: web.Request) -> web.StreamResponse:
        message = endpoint_envelope(await request.json())
        if next(fails):
            return web.Response(status=500)
        answered[message[0]].append(message[1])
        return web.Response(status=204)

    endpoint.reply = flaky
    async with pushing(PushSettings(longest_pause_seconds=0)) as running:
        await push_to(running.broker, endpoint.url, retry=RetryPolicy(0, 0), ordered=True)
        for number in range(60):
            await running.broker.publish_message(TOPIC, Message(b"%d" % number, ordering_key=f"key-{number % 3}"))
        await acked(running.broker, 60)
    assert answered == {f"key-{key}": list(range(key, 60, 3)) for key in range(3)}


def endpoint_envelope(envelope: dict[str, dict[str, str]]) -> tuple[str, int]:
    import base64

    return envelope["message"]["orderingKey"], int(base64.b64decode(envelope["message"]["data"]))


# Trying again.


async def test_retry_after_puts_the_message_off(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(503, Retry_After="600")
    await push_to(running.broker, endpoint.url, retry=AT_ONCE)
    await publish(running.broker, "a")
    status = await running.until(lambda status: status.waiting == 1)
    assert status.next_due_ns is not None
    assert status.last_attempt_ns is not None
    assert 600e9 <= status.next_due_ns - status.last_attempt_ns < 610e9


async def test_drop_after_attempts_logs_and_drops(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.reply = answering(500)
    async with pushing(PushSettings(drop_after_attempts=3)) as running:
        await push_to(running.broker, endpoint.url, retry=AT_ONCE)
        await publish(running.broker, "a")
        await acked(running.broker, 1)
        assert len(endpoint.envelopes) == 3
        assert running.status().dropped == 1
    (line,) = [record for record in caplog.records if "dropped" in record.message]
    assert line.levelno == logging.ERROR
    assert line.fields["attempts"] == 3  # type: ignore[attr-defined]
    assert line.fields["messageId"] == endpoint.envelopes[0]["message"]["messageId"]  # type: ignore[attr-defined]


async def test_what_has_a_dead_letter_policy_is_never_dropped(endpoint: Endpoint) -> None:
    endpoint.reply = answering(500)
    async with pushing(PushSettings(drop_after_attempts=1)) as running:
        reader = await make_dead_letter_topic(running.broker)
        await push_to(running.broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5), retry=AT_ONCE)
        await publish(running.broker, "a")
        dead = decode((await asyncio.wait_for(take_one(reader), 20)).body)
    assert dead.attributes[names.SOURCE_DELIVERY_COUNT] == "5"
    assert dead.attributes[names.LAST_STATUS] == "500"
    assert dead.attributes[names.ERROR] == "the endpoint answered 500"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("retry", [AT_ONCE, RetryPolicy(0, 0)])
async def test_an_outage_makes_no_dead_letters(endpoint: Endpoint, retry: RetryPolicy) -> None:
    """5,000 messages wait for an endpoint that is down; each would have spent its five attempts long before."""
    endpoint.reply = answering(503)
    settings = BrokerSettings(breaker_seconds=0.2, breaker_longest_seconds=0.4)
    async with pushing(PushSettings(longest_pause_seconds=0), broker_settings=settings) as running:
        dead_letters = await make_dead_letter_topic(running.broker)
        await push_to(running.broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5), retry=retry)
        messages = [encode(Message(b"%d" % number)) for number in range(1000)]
        for _ in range(5):
            await running.broker.publish(TOPIC, messages, 1)
        paused = await running.until(lambda status: status.state == "paused" and status.pause is not None)
        assert "failed, the last with 503" in paused.pause.why  # type: ignore[union-attr]
        asked = len(endpoint.bodies)
        await asyncio.sleep(2)
        assert len(endpoint.bodies) - asked <= 10  # a probe for each pause
        endpoint.reply = None
        async with asyncio.timeout(60):
            while running.broker.queue(SUBSCRIPTION).settled.floor <= 5000:
                await asyncio.sleep(0.01)
        assert await take(dead_letters) == []


async def test_without_a_dead_letter_policy_it_is_tried_on_and_on(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(500)
    await push_to(running.broker, endpoint.url, retry=RetryPolicy(0, 0))
    await publish(running.broker, "a")
    await endpoint.wait_for(8)
    endpoint.reply = None
    await acked(running.broker, 1)


# Who sends, and to whom.


async def test_a_token_is_sent_where_it_is_asked_for(running: Pushing, endpoint: Endpoint) -> None:
    push = PushConfig(endpoint.url, oidc=OidcToken("me@local.iam.gserviceaccount.com"))
    await push_to(running.broker, endpoint.url, push=push)
    await publish(running.broker, "a", "b")
    await acked(running.broker, 2)
    first, second = [headers["Authorization"] for headers in endpoint.headers]
    assert first.startswith("Bearer ey")
    assert first == second


async def test_an_endpoint_agrees_before_it_is_sent_anything(running: Pushing, endpoint: Endpoint) -> None:
    async def consent(request: web.Request) -> web.StreamResponse:
        if request.method == "OPTIONS":
            return web.Response(headers={"WebHook-Allowed-Origin": request.headers["WebHook-Request-Origin"]})
        return web.Response(status=204)

    endpoint.reply = consent
    await push_to(running.broker, endpoint.url, push=PushConfig(endpoint.url, {CONFIRM: "true"}))
    await publish(running.broker, "a", "b")
    await acked(running.broker, 2)
    assert endpoint.methods == ["OPTIONS", "POST", "POST"]
    assert endpoint.headers[0]["WebHook-Request-Origin"] == "broker.example.com"
    consented = running.broker.get_subscription(SUBSCRIPTION).consent
    assert consented is not None
    assert consented.endpoint == endpoint.url


@pytest.mark.parametrize("status", [200, 204, 404, 500])
async def test_an_endpoint_that_does_not_agree_is_sent_nothing(endpoint: Endpoint, status: int) -> None:
    endpoint.reply = answering(status, WebHook_Allowed_Origin="someone.else")
    async with pushing(PushSettings(confirm_endpoints=True)) as running:
        await push_to(running.broker, endpoint.url)
        await publish(running.broker, "a")
        found = await running.until(lambda status: bool(status.last_error))
        assert found.state == "unconfirmed"
        assert "agree" in found.last_error
        assert found.due == 1
    assert set(endpoint.methods) == {"OPTIONS"}


async def test_an_endpoint_may_say_how_fast(running: Pushing, endpoint: Endpoint) -> None:
    """6,000 a minute are 100 a second: 10 at once, and the 10 others over 0.1 seconds."""
    endpoint.reply = answering(200, WebHook_Allowed_Origin="*", WebHook_Allowed_Rate="6000")
    await push_to(running.broker, endpoint.url, push=PushConfig(endpoint.url, {CONFIRM: "true"}))
    await publish(running.broker, *map(str, range(20)))
    await acked(running.broker, 20)
    consented = running.broker.get_subscription(SUBSCRIPTION).consent
    assert consented is not None
    assert consented.per_second == 100


async def test_another_endpoint_is_asked_again(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(200, WebHook_Allowed_Origin="*")
    await push_to(running.broker, endpoint.url, push=PushConfig(endpoint.url, {CONFIRM: "true"}))
    await publish(running.broker, "a")
    await acked(running.broker, 1)
    async with push_endpoint(answering(200)) as other:
        await running.broker.modify_push_config(SUBSCRIPTION, PushConfig(other.url, {CONFIRM: "true"}))
        await publish(running.broker, "b")
        await running.until(lambda status: status.state == "unconfirmed" and bool(status.last_error))
        assert other.methods == ["OPTIONS"]


async def test_a_new_endpoint_starts_with_a_new_window(running: Pushing, endpoint: Endpoint) -> None:
    await push_to(running.broker, endpoint.url)
    await publish(running.broker, *map(str, range(50)))
    await acked(running.broker, 50)
    async with push_endpoint() as other:
        await running.broker.modify_push_config(SUBSCRIPTION, PushConfig(other.url))
        await publish(running.broker, "x")
        await other.wait_for(1)
        await running.until(lambda status: status.window == 5)


# The guard.


async def test_an_endpoint_in_a_blocked_network_is_refused_at_once() -> None:
    async with pushing(PushSettings(), guard=AddressGuard()) as running:
        with pytest.raises(BadInput, match=r"push_config\.push_endpoint: .*127\.0\.0\.1"):
            await push_to(running.broker, "http://127.0.0.1:8080/push")


async def test_a_name_that_leads_to_a_blocked_address_gets_nothing_and_costs_no_attempt(endpoint: Endpoint) -> None:
    def resolve(host: str) -> list[str]:
        return ["127.0.0.1"]

    async with pushing(PushSettings(), guard=AddressGuard(), resolve=resolve) as running:
        await push_to(running.broker, endpoint.url.replace("127.0.0.1", "inner.example.com"), retry=AT_ONCE)
        await publish(running.broker, "a")
        status = await running.until(lambda status: status.attempts.get("blocked", 0) >= 1)
        assert status.state == "paused"
        assert "outgoing.allow" in status.last_error
        assert [failed.attempts for failed in running.broker.queue(SUBSCRIPTION).settled.failed.values()] == [0]
    assert not endpoint.bodies


# Stopping and starting.


async def test_a_stop_lets_running_requests_end_and_sends_no_more(endpoint: Endpoint) -> None:
    endpoint.reply = gate = Gate()
    async with pushing(PushSettings()) as running:
        await push_to(running.broker, endpoint.url)
        await publish(running.broker, *map(str, range(10)))
        await endpoint.wait_for(4)
        stopping = asyncio.create_task(running.push.stop())
        await asyncio.sleep(0)
        gate.open()
        await stopping
        assert running.broker.queue(SUBSCRIPTION).settled.floor == 5
    assert len(endpoint.bodies) == 4


async def test_what_a_stop_leaves_is_logged_and_goes_on_after_the_restart(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempts, and the time of the next one, are what they were."""
    caplog.set_level(logging.INFO, "holdfast")
    endpoint.reply = Gate()
    path = tmp_path / "broker.db"
    log = await SqliteMessageLog.open(path)
    async with pushing(PushSettings(grace_seconds=0.05), log=log) as running:
        await make_dead_letter_topic(running.broker)
        await push_to(running.broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS), retry=ONE)
        await publish(running.broker, *map(str, range(6)))
        await endpoint.wait_for(4)
    await log.close()
    (line,) = [record for record in caplog.records if "what is left" in record.message]
    assert line.fields == {"requestsCutOff": 4, "messagesDue": 2, "messagesWaiting": 4}  # type: ignore[attr-defined]

    endpoint.envelopes.clear()
    endpoint.reply = None
    log = await SqliteMessageLog.open(path)
    async with pushing(PushSettings(), log=log) as running:
        failed = dict(running.broker.queue(SUBSCRIPTION).settled.failed)
        assert [attempts.attempts for attempts in failed.values()] == [1, 1, 1, 1]
        await acked(running.broker, 6)
    await log.close()
    attempts = {envelope["message"]["messageId"]: envelope["deliveryAttempt"] for envelope in endpoint.envelopes}
    assert sorted(attempts.values()) == [1, 1, 2, 2, 2, 2]


async def test_turning_push_into_pull_lets_running_requests_count(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = gate = Gate()
    await push_to(running.broker, endpoint.url)
    await publish(running.broker, "a")
    await endpoint.wait_for(1)
    await running.broker.modify_push_config(SUBSCRIPTION, None)
    gate.open()
    await acked(running.broker, 1)
    assert running.push.status() == []


# What a review found: each of these flooded, stalled, lost or leaked something.


class RefusingLog(MemoryMessageLog):
    """A disk that takes no change of a subscription's configuration once it is full."""

    is_full = False

    async def commit(self, changes: Sequence[Change]) -> None:
        if self.is_full and any(isinstance(change, PutSubscription) for change in changes):
            raise StorageUnavailable("disk full")
        await super().commit(changes)


async def test_an_agreement_that_cannot_be_kept_does_not_make_us_ask_again_and_again(endpoint: Endpoint) -> None:
    endpoint.reply = answering(200, WebHook_Allowed_Origin="*")
    log = RefusingLog()
    async with pushing(PushSettings(confirm_endpoints=True), log=log) as running:
        await push_to(running.broker, endpoint.url)
        log.is_full = True
        await publish(running.broker, "a")
        status = await running.until(lambda status: "disk full" in status.last_error)
        assert status.state == "unconfirmed"
        for number in range(20):
            await publish(running.broker, str(number))
        assert endpoint.methods == ["OPTIONS"]


async def test_an_agreement_to_nothing_is_none(endpoint: Endpoint) -> None:
    endpoint.reply = answering(200, WebHook_Allowed_Origin="*", WebHook_Allowed_Rate="0")
    async with pushing(PushSettings(confirm_endpoints=True)) as running:
        await push_to(running.broker, endpoint.url)
        await publish(running.broker, "a")
        await running.until(lambda status: "no requests at all" in status.last_error)
    assert endpoint.methods == ["OPTIONS"]


async def test_the_rate_that_one_endpoint_asked_for_is_not_anothers(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(200, WebHook_Allowed_Origin="*", WebHook_Allowed_Rate="60")
    await push_to(running.broker, endpoint.url, push=PushConfig(endpoint.url, {CONFIRM: "true"}))
    await publish(running.broker, "a")
    await acked(running.broker, 1)
    async with push_endpoint() as other:
        await running.broker.modify_push_config(SUBSCRIPTION, PushConfig(other.url))
        await publish(running.broker, *map(str, range(30)))
        await asyncio.wait_for(other.wait_for(30), 5)  # at one a second it would take half a minute


async def test_an_endpoint_that_was_mended_does_not_wait_for_the_broken_one(endpoint: Endpoint) -> None:
    endpoint.reply = gate = Gate(500)
    async with pushing(PushSettings(timeout_seconds=10)) as running, push_endpoint() as good:
        await push_to(running.broker, endpoint.url)
        await publish(running.broker, *map(str, range(10)))
        await endpoint.wait_for(4)
        await running.broker.modify_push_config(SUBSCRIPTION, PushConfig(good.url))
        await good.wait_for(6)
        gate.open()
        status = await running.until(lambda status: status.attempts.get("status_5xx", 0) == 4)
        assert status.window == 10  # the old endpoint's failures are not the new one's


async def test_who_found_no_room_goes_on_when_others_end() -> None:
    """Not only when its own answer comes, which may take as long as its endpoint likes."""
    slow, gate = Gate(), Gate()
    async with (
        pushing(PushSettings(timeout_seconds=20, max_requests=4)) as running,
        push_endpoint(gate) as others,
        push_endpoint() as mine,
    ):
        await running.broker.create_topic(Topic(TOPIC))
        for number in range(3):
            await subscribe(running.broker, f"other-{number}", others.url)
        await publish(running.broker, "a", "b")
        await others.wait_for(3)
        path = await subscribe(running.broker, "mine", mine.url)
        mine.reply = slow
        await publish(running.broker, "c", "d", "e")
        await mine.wait_for(1)
        gate.open()
        await mine.wait_for(2)  # while the first one still hangs
        slow.open()
        await running.until(lambda status: status.attempts == {"acknowledged": 3}, path)


async def test_a_stop_never_costs_a_message_its_place(endpoint: Endpoint) -> None:
    endpoint.reply = Gate()
    log = MemoryMessageLog()
    async with pushing(PushSettings(grace_seconds=0.05, drop_after_attempts=1), log=log) as running:
        await push_to(running.broker, endpoint.url, retry=AT_ONCE)
        await publish(running.broker, "a")
        await endpoint.wait_for(1)
    endpoint.reply = None
    async with pushing(PushSettings(), log=log) as running:
        await acked(running.broker, 1)
    assert endpoint.data == [b"a", b"a"]


async def test_an_answer_from_before_a_seek_does_not_settle_the_message_again(
    running: Pushing, endpoint: Endpoint
) -> None:
    endpoint.reply = gate = Gate()
    await push_to(running.broker, endpoint.url, retain_acked=True)
    await publish(running.broker, "a")
    await endpoint.wait_for(1)
    queue = running.broker.queue(SUBSCRIPTION)
    second = endpoint.reply = Gate()
    await queue.seek(lambda _: Progress(1))
    await endpoint.wait_for(2)
    gate.open()
    await running.until(lambda status: status.attempts.get("acknowledged", 0) == 1)
    assert 1 not in queue.settled
    second.open()
    await acked(running.broker, 1)


async def test_a_detached_subscription_has_nothing_due(running: Pushing, endpoint: Endpoint) -> None:
    await push_to(running.broker, endpoint.url)
    await running.broker.detach_subscription(SUBSCRIPTION)
    await publish(running.broker, "a", "b")
    assert running.status().due == 0
    assert not endpoint.bodies


async def test_what_an_endpoint_says_of_a_failure_is_short_and_printable(running: Pushing, endpoint: Endpoint) -> None:
    endpoint.reply = answering(500, Holdfast_Error="%1B[31m" + "x" * 5000)
    await push_to(running.broker, endpoint.url)
    await publish(running.broker, "a")
    status = await running.until(lambda status: bool(status.last_error))
    assert status.last_error == "?[31m" + "x" * 1019


async def test_a_key_that_cannot_be_kept_costs_no_attempt(endpoint: Endpoint) -> None:
    class NoKeys(MemoryMessageLog):
        async def commit(self, changes: Sequence[Change]) -> None:
            if any(isinstance(change, PutRecord) for change in changes):
                raise StorageUnavailable("disk full")
            await super().commit(changes)

    async with pushing(PushSettings(), log=NoKeys()) as running:
        push = PushConfig(endpoint.url, oidc=OidcToken("me@local.iam.gserviceaccount.com"))
        await push_to(running.broker, endpoint.url, push=push)
        await publish(running.broker, "a")
        await running.until(lambda status: status.state == "paused")
        assert [failed.attempts for failed in running.broker.queue(SUBSCRIPTION).settled.failed.values()] == [0]
    assert not endpoint.bodies
