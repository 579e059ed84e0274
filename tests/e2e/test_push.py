"""Push delivery by the real command: what kill -9 does to it, and who can tell that a request is the broker's."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession, web
from google.auth.transport import requests as google_requests
from google.oauth2 import id_token

from tests.support.process import Launcher
from tests.support.push_endpoint import push_endpoint

PROJECT = "projects/local"
TOPIC = f"{PROJECT}/topics/orders"
DEAD = f"{PROJECT}/topics/orders.dead"
SUBSCRIPTION = f"{PROJECT}/subscriptions/orders-push"
ACCOUNT = "push@local.iam.gserviceaccount.com"

ROUNDS = 5
BATCHES = 40
SEED = 20261116

NO_PAUSES = {"HOLDFAST_BROKER_PUSH_LONGEST_PAUSE_SECONDS": "0", "HOLDFAST_BROKER_BREAKER_SHARE": "0"}


class Rest:
    """Calls that are answered, or not; both are an answer here."""

    def __init__(self, session: ClientSession, address: str) -> None:
        self._session = session
        self._url = f"http://{address}/v1"

    async def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.request(method, f"{self._url}/{path}", json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
            return answer

    async def make(self, **subscription: Any) -> None:
        await self.call("PUT", TOPIC, {})
        await self.call("PUT", DEAD, {})
        await self.call("PUT", SUBSCRIPTION, {"topic": TOPIC, **subscription})

    async def publish(self, *data: str) -> list[str]:
        messages = [{"attributes": {"name": item}} for item in data]
        answer = await self.call("POST", f"{TOPIC}:publish", {"messages": messages})
        found: list[str] = answer["messageIds"]
        return found


class History:
    """What the endpoint saw of each message, in order."""

    def __init__(self, seed: int) -> None:
        self.published: set[str] = set()
        self.accepted: set[str] = set()
        self.attempts: dict[str, list[int]] = defaultdict(list)
        self.well = False
        self._random = random.Random(seed)

    async def reply(self, request: web.Request) -> web.StreamResponse:
        envelope = await request.json()
        name = envelope["message"]["attributes"]["name"]
        self.attempts[name].append(envelope["deliveryAttempt"])
        if not self.well and self._random.random() < 0.6:
            return web.Response(status=500)
        self.accepted.add(name)
        return web.Response(status=204)

    def went_back(self) -> dict[str, list[int]]:
        return {name: seen for name, seen in self.attempts.items() if seen != sorted(seen)}


async def test_kill_9_in_the_middle_of_deliveries_loses_nothing_and_no_attempt(launcher: Launcher) -> None:
    """Retries are due at once here, so that attempts are counted as fast as they can be."""
    history, names = History(SEED), (f"message-{number}" for number in itertools.count())
    async with push_endpoint(history.reply) as endpoint, ClientSession() as session:
        for round_number in range(ROUNDS):
            broker = await asyncio.to_thread(launcher.part, "broker", env=NO_PAUSES)
            rest = Rest(session, broker.broker)
            if round_number == 0:
                await rest.make(
                    pushConfig={"pushEndpoint": endpoint.url},
                    retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"},
                    deadLetterPolicy={"deadLetterTopic": DEAD, "maxDeliveryAttempts": 100},
                )
            seen = len(endpoint.bodies)
            for _ in range(BATCHES):
                batch = list(itertools.islice(names, 5))
                await rest.publish(*batch)
                history.published.update(batch)
            await endpoint.wait_for(seen + 300)
            await asyncio.to_thread(broker.kill)
        history.well = True
        await asyncio.to_thread(launcher.part, "broker", env=NO_PAUSES)
        await endpoint.wait_until(lambda: history.accepted >= history.published)
    assert history.went_back() == {}
    assert any(len(seen) > 3 for seen in history.attempts.values())


async def test_google_auth_verifies_the_token_with_the_brokers_keys(launcher: Launcher) -> None:
    broker = await asyncio.to_thread(launcher.part, "broker")
    async with push_endpoint() as endpoint, ClientSession() as session:
        rest = Rest(session, broker.broker)
        config = {"pushEndpoint": endpoint.url, "oidcToken": {"serviceAccountEmail": ACCOUNT, "audience": "me"}}
        await rest.make(pushConfig=config)
        await rest.publish("a")
        await endpoint.wait_for(1)
    token = endpoint.headers[0]["Authorization"].removeprefix("Bearer ")
    for certificates in ("oauth2/v1/certs", "oauth2/v3/certs"):
        claims = await asyncio.to_thread(_verified, token, f"http://{broker.broker}/{certificates}")
        assert claims["email"] == ACCOUNT
        assert claims["email_verified"] is True
        assert claims["iss"] == f"http://{broker.broker}"
        assert claims["exp"] - claims["iat"] == 3600


def _verified(token: str, certificates: str) -> Mapping[str, Any]:
    request = google_requests.Request()
    try:
        return id_token.verify_token(token, request, audience="me", certs_url=certificates)
    finally:
        request.session.close()


async def test_unwrapped_messages_go_out_as_they_are(launcher: Launcher) -> None:
    broker = await asyncio.to_thread(launcher.part, "broker")
    async with push_endpoint() as endpoint, ClientSession() as session:
        rest = Rest(session, broker.broker)
        await rest.make(pushConfig={"pushEndpoint": endpoint.url, "noWrapper": {"writeMetadata": True}})
        (message_id,) = await rest.publish("a")
        await endpoint.wait_for(1)
    assert endpoint.bodies == [b""]
    assert endpoint.headers[0]["x-goog-pubsub-message-id"] == message_id
    assert endpoint.headers[0]["x-goog-pubsub-subscription-name"] == SUBSCRIPTION
    assert endpoint.headers[0]["name"] == "a"


async def test_up_takes_its_own_pushes_and_nobody_elses(launcher: Launcher) -> None:
    up = await asyncio.to_thread(launcher.up)
    async with ClientSession() as session:
        rest = Rest(session, up.broker)
        await rest.call("POST", f"{PROJECT}/topics/market-ticks:publish", {"messages": [{"data": "bm8="}]})
        forged = {"message": {"data": "e30=", "messageId": "1"}}
        async with session.post(f"{up.url}/pubsub/push", json=forged) as answer:
            assert answer.status == 401
        status = await _until_sent(session, up.broker, "market-ticks.materializer")
    assert status["lastStatus"] == "400"  # let in, and found to be no JSON


async def _until_sent(session: ClientSession, broker: str, subscription: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            async with session.get(f"http://{broker}/api/v1/push?subscription={subscription}") as response:
                (found,) = (await response.json())["subscriptions"]
            if found["attempts"]:
                status: dict[str, Any] = found
                return status
            await asyncio.sleep(0.02)


async def test_a_broker_that_others_reach_pushes_to_no_inner_address(launcher: Launcher) -> None:
    """Listening everywhere, it must not be the way into its own machine."""
    broker = await asyncio.to_thread(launcher.part, "broker", "--host", "0.0.0.0")
    address = broker.broker.replace("0.0.0.0", "127.0.0.1")
    async with push_endpoint() as endpoint, ClientSession() as session:
        rest = Rest(session, address)
        with pytest.raises(AssertionError, match=r"push_config\.push_endpoint: 127\.0\.0\.1 is not allowed"):
            await rest.make(pushConfig={"pushEndpoint": endpoint.url})
        by_name = {"pushEndpoint": endpoint.url.replace("127.0.0.1", "localhost")}
        with pytest.raises(AssertionError, match=r"push_config\.push_endpoint: 127\.0\.0\.1 is not allowed"):
            await rest.call("PUT", SUBSCRIPTION, {"topic": TOPIC, "pushConfig": by_name})
    assert not endpoint.bodies
