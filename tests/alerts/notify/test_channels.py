"""Each channel against a local server of its documented form: what is said, and what its answers come to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.notify.channel import Channel, NotSent
from holdfast.alerts.notify.notification import CHANGE, Notification, from_json, to_json
from holdfast.alerts.notify.reading import Reading
from holdfast.alerts.notify.receiver import Receiver
from holdfast.alerts.notify.webhook import key_of, signature
from holdfast.outgoing.addresses import LOOPBACK, AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.testing import ManualClock
from tests.alerts.notify import endpoints
from tests.alerts.notify.endpoints import ROUTING_KEY, SIGNING_SECRET, SLACK_PATH, Endpoint, Incidents, endpoint
from tests.alerts.notify.telling import Telling, alert

SECRETS = {"KEY": ROUTING_KEY, "SECRET": SIGNING_SECRET}


class Channels:
    """Receivers as the settings make them."""

    def __init__(self, client: OutgoingClient, clock: ManualClock) -> None:
        self.client = client
        self.clock = clock

    def make(self, environ: Mapping[str, str] | None = None, **table: Any) -> Receiver:
        reading = Reading(self.client, self.clock, {**SECRETS, **(environ or {})})
        return reading.receivers([{"name": "ops", **table}])[0]

    def slack(self, found: Endpoint) -> Receiver:
        return self.make({"URL": found.url}, kind="slack", url_env="URL")

    def pagerduty(self, found: Endpoint) -> Receiver:
        return self.make(kind="pagerduty", routing_key_env="KEY", url=found.url, source="eu-1")

    def webhook(self, found: Endpoint) -> Receiver:
        return self.make(kind="webhook", url=found.url, secret_env="SECRET")


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    async with AsyncExitStack() as stack:
        client = OutgoingClient(AddressGuard(LOOPBACK))
        stack.push_async_callback(client.close)
        yield Channels(client, ManualClock())


def notification(*alerts: Alert, **changed: Any) -> Notification:
    firing = sum(one.ended_at_ns is None for one in alerts)
    plain = Notification(
        "ntf_1", "ops", CHANGE, "holdfast-k", {"rule": "R"}, firing, len(alerts) - firing, alerts, 1_700_000_000 * 10**9
    )
    return replace(plain, **changed)


def ended(one: Alert) -> Alert:
    return replace(one, ended_at_ns=one.started_at_ns + 90 * 10**9)


# Slack.


async def test_slack_is_told_what_since_when_how_much_and_what_to_do(channels: Channels) -> None:
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        assert await channels.slack(found).channel.send(notification(alert(), ended(alert(subscription="b")))) is None
    [told] = found.taken
    assert told["text"] == "[WARNING] OldestUnacked: 1 firing, 1 resolved"
    title, firing, over = (block["text"]["text"] for block in told["blocks"])
    assert title == "*[WARNING] OldestUnacked: 1 firing, 1 resolved*"
    assert firing.splitlines() == [
        "*a is late*",
        "Rule: OldestUnacked (warning)",
        "Since: 2023-11-14 22:13:20 UTC",
        "Value: 400 seconds (limit 5 minutes)",
        "Subscription: projects/local/subscriptions/a",
        "Runbook: https://x.test/rb#oldestunacked",
        "Next: `holdfast push status a`",
    ]
    assert over.splitlines()[0] == "*Over: b is late*"
    assert "Over at: 2023-11-14 22:14:50 UTC" in over


async def test_slack_takes_the_worst_that_can_be_told(channels: Channels) -> None:
    nasty = alert(subscription="<!channel> & `rm`\n" + "x" * 4000)
    many = [nasty, *(alert(subscription=f"s{number}") for number in range(49))]
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        assert await channels.slack(found).channel.send(notification(*many, firing=1000)) is None
    [told] = found.taken
    assert "<!channel>" not in json.dumps(told)
    assert told["blocks"][-1]["text"]["text"] == "and 980 more: holdfast alerts list"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((400, {}, "invalid_payload"), (True, None, "answered 400: invalid_payload")),
        ((403, {}, "action_prohibited"), (True, None, "answered 403: action_prohibited")),
        ((404, {}, "no_service"), (True, None, "answered 404: no_service")),
        ((410, {}, "channel_is_archived"), (True, None, "answered 410: channel_is_archived")),
        ((429, {"Retry-After": "30"}, "rate_limited"), (False, 30.0, "answered 429: rate_limited")),
        ((429, {"Retry-After": "Tue, 14 Nov 2023 22:14:20 GMT"}, ""), (False, 60.0, "answered 429")),
        ((500, {}, "rollup_error"), (False, None, "answered 500: rollup_error")),
        ((302, {"Location": "https://elsewhere.test"}, ""), (True, None, "answered 302")),
    ],
)
async def test_what_slack_answers(
    channels: Channels, answer: tuple[int, dict[str, str], str], expected: tuple[bool, float | None, str]
) -> None:
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers.append(answer)
        result = await channels.slack(found).channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    refused, retry_after, error = expected
    assert (result.refused, result.retry_after) == (refused, retry_after)
    assert result.error.endswith(error)


@pytest.mark.parametrize(("status", "refused"), [(200, None), (404, True), (503, False)])
async def test_a_page_for_an_answer_counts_by_its_status(channels: Channels, status: int, refused: bool | None) -> None:
    """A proxy's error is often one, and longer than anybody reads."""
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers.append((status, {}, "<p>sorry</p>" * 10_000))
        result = await channels.slack(found).channel.send(notification(alert()))
    assert (None if result is None else result.refused) is refused
    assert result is None or result.error.endswith(f"answered {status}")


async def test_an_answer_without_end_is_no_success(channels: Channels) -> None:
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers.append((200, {"X-Long": "x" * 100_000}, ""))
        result = await channels.slack(found).channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert not result.refused


async def test_nobody_there_and_nobody_allowed(channels: Channels) -> None:
    async with endpoint(endpoints.slack) as found:
        pass
    gone = await channels.slack(found).channel.send(notification(alert()))
    assert isinstance(gone, NotSent)
    assert (gone.refused, "Connection refused" in gone.error) == (False, True)
    metadata = channels.make({"URL": "http://169.254.169.254/latest"}, kind="slack", url_env="URL")
    blocked = await metadata.channel.send(notification(alert()))
    assert isinstance(blocked, NotSent)
    assert blocked.refused
    assert "not allowed by outgoing.allow" in blocked.error


async def test_an_endpoint_that_repeats_the_secret_is_not_quoted(channels: Channels) -> None:
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers.append((404, {}, f"cannot POST {SLACK_PATH} nor {found.url}"))
        receiver = channels.slack(found)
        result = await receiver.channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert "canary" not in result.error
    assert "answered 404: cannot POST *** nor ***" in result.error
    assert receiver.channel.where == found.url.removesuffix(SLACK_PATH)
    assert "canary" not in repr(receiver)


@pytest.mark.parametrize(
    ("status", "expected"), [(200, None), (500, NotSent("answered 500")), (403, NotSent("answered 403", refused=True))]
)
async def test_a_body_that_is_too_large_says_nothing_else_than_its_status(
    channels: Channels, status: int, expected: NotSent | None
) -> None:
    """Many a proxy answers with a page of HTML."""
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers.append((status, {}, "<p>sorry</p>" * 100_000))
        result = await channels.slack(found).channel.send(notification(alert()))
    if result is not None:
        result = replace(result, error=result.error.partition(" ")[2])
    assert result == expected


async def test_no_half_of_a_secret_is_left_where_an_answer_is_cut(channels: Channels) -> None:
    async with endpoint(endpoints.slack, SLACK_PATH) as found:
        found.answers += [(404, {}, "x" * (200 - cut) + found.url) for cut in range(1, len(found.url))]
        channel = channels.slack(found).channel
        results = [await channel.send(notification(alert())) for _ in found.answers[:]]
    assert len(results) > len(SLACK_PATH)
    assert not [one for one in results if one is None or "T000" in one.error]


# PagerDuty.


async def test_pagerduty_gets_a_trigger_and_then_a_resolve_of_the_same_incident(channels: Channels) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        channel = channels.pagerduty(found).channel
        assert await channel.send(notification(alert(severity=Severity.CRITICAL))) is None
        assert Incidents(found.taken).open == {"holdfast-k"}
        assert await channel.send(notification(ended(alert()), opens=False)) is None
    trigger, resolve = found.taken
    assert resolve == {"routing_key": ROUTING_KEY, "event_action": "resolve", "dedup_key": "holdfast-k"}
    assert Incidents(found.taken).open == set()
    payload = trigger["payload"]
    assert payload["summary"] == "[CRITICAL] a is late"
    assert (payload["severity"], payload["source"], payload["class"]) == ("critical", "eu-1", "OldestUnacked")
    assert payload["timestamp"] == "2023-11-14T22:13:20Z"
    assert trigger["links"] == [{"href": "https://x.test/rb#oldestunacked", "text": "Runbook: OldestUnacked"}]
    [told] = payload["custom_details"]["alerts"]
    assert (told["value"], told["next"]) == ("400 seconds (limit 5 minutes)", "holdfast push status a")


async def test_pagerduty_hears_of_what_is_over_already(channels: Channels) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        assert await channels.pagerduty(found).channel.send(notification(ended(alert()))) is None
    assert [event["event_action"] for event in found.taken] == ["trigger", "resolve"]
    incidents = Incidents(found.taken)
    assert (incidents.opened, incidents.open) == (["holdfast-k"], set())


async def test_pagerduty_takes_the_worst_that_can_be_told(channels: Channels) -> None:
    long = replace(alert(), summary="x" * 5000, details={"runbook": "docs/runbook.md#x"})
    async with endpoint(endpoints.pagerduty) as found:
        assert await channels.pagerduty(found).channel.send(notification(long)) is None
    assert found.taken[0]["links"] == []  # no whole URL


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ((400, {}, '{"status": "invalid event", "message": "Event object is invalid", "errors": ["x"]}'), True),
        ((429, {}, ""), False),
        ((500, {}, ""), False),
        ((503, {"Retry-After": "7"}, ""), False),
    ],
)
async def test_what_pagerduty_answers(
    channels: Channels, answer: tuple[int, dict[str, str], str], refused: bool
) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        found.answers.append(answer)
        result = await channels.pagerduty(found).channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result.refused is refused
    assert ROUTING_KEY not in result.error
    assert found.taken == []


async def test_pagerduty_refuses_a_wrong_key(channels: Channels) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        wrong = channels.make({"KEY": "short"}, kind="pagerduty", routing_key_env="KEY", url=found.url)
        result = await wrong.channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert "should be 32 characters" in result.error


# Webhooks.


async def test_a_webhook_is_signed_and_has_the_same_id_when_it_comes_again(channels: Channels) -> None:
    sent = notification(alert(), ended(alert(subscription="b")))
    async with endpoint(endpoints.standard_webhook) as found:
        channel = channels.webhook(found).channel
        assert await channel.send(sent) is None
        channels.clock.advance(60)
        assert await channel.send(sent) is None
    first, second = found.headers
    assert (first["webhook-id"], second["webhook-id"]) == ("ntf_1", "ntf_1")
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 60
    assert first["webhook-signature"] != second["webhook-signature"]
    assert found.taken == [to_json(sent)] * 2
    assert from_json(found.taken[0]) == replace(sent, alerts=[*sent.alerts])


async def test_a_wrong_signature_is_refused(channels: Channels) -> None:
    async with endpoint(endpoints.standard_webhook) as found:
        wrong = channels.make({"SECRET": "other"}, kind="webhook", url=found.url, secret_env="SECRET")
        result = await wrong.channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result.refused


def test_the_signature_is_that_of_the_specification() -> None:
    """The example that Standard Webhooks' own libraries are tested with."""
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# The log.


async def test_the_log_is_a_receiver_too(channels: Channels, caplog: pytest.LogCaptureFixture) -> None:
    channel = channels.make(kind="log").channel
    caplog.set_level("INFO", "holdfast.alerts")
    await channel.send(notification(alert(severity=Severity.CRITICAL)))
    await channel.send(notification(ended(alert())))
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("CRITICAL", "[CRITICAL] a is late"),
        ("INFO", "[RESOLVED] a is late"),
    ]


# Kills, with the real channels.


class DiesAfter:
    """The process is killed once the request is answered, before anybody could note it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.where = channel.where
        self.kills = 1

    async def send(self, notification: Notification) -> NotSent | None:
        result = await self._channel.send(notification)
        if self.kills:
            self.kills -= 1
            raise asyncio.CancelledError
        return result


async def killed_once(receiver: Receiver, folder: Path) -> None:
    """An alert begins, its message goes out, the process dies; the next one sends again and tells the end."""
    telling = await Telling(folder, replace(receiver, channel=DiesAfter(receiver.channel))).start()
    await telling.begin(alert())
    with pytest.raises(asyncio.CancelledError):
        await telling.after(10)
    await telling.restart()
    await telling.after(60)
    await telling.end(alert())
    await telling.after(120)
    await telling.stop()


async def test_pagerduty_makes_one_incident_of_it(channels: Channels, tmp_path: Path) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        await killed_once(channels.pagerduty(found), tmp_path)
    assert [event["event_action"] for event in found.taken] == ["trigger", "trigger", "resolve"]
    incidents = Incidents(found.taken)
    assert (len(incidents.opened), incidents.open) == (1, set())


async def test_a_webhook_knows_it_by_its_id(channels: Channels, tmp_path: Path) -> None:
    async with endpoint(endpoints.standard_webhook) as found:
        await killed_once(channels.webhook(found), tmp_path)
    ids = [headers["webhook-id"] for headers in found.headers]
    assert (ids[0] == ids[1], ids[1] == ids[2], len(ids)) == (True, False, 3)
    assert found.taken[0] == found.taken[1]


async def test_an_outage_of_pagerduty_loses_nothing_and_keeps_the_order(channels: Channels, tmp_path: Path) -> None:
    async with endpoint(endpoints.pagerduty) as found:
        receiver = channels.pagerduty(found)
        telling = await Telling(tmp_path, receiver).start()
        found.answers += [(500, {}, ""), (429, {"Retry-After": "120"}, ""), (503, {}, "")]
        await telling.begin(alert("One"), alert("Two"))
        await telling.after(11)
        await telling.end(alert("One"))
        await telling.after(600)
        await telling.stop()
    actions = [(event["event_action"], event.get("payload", {}).get("class")) for event in found.taken]
    assert actions == [("trigger", "One"), ("trigger", "Two"), ("resolve", None)]
    incidents = Incidents(found.taken)
    assert (len(incidents.opened), len(incidents.open)) == (2, 1)
