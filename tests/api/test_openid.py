"""The broker's keys on its port: Google's own library, and ours, verify push tokens with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import google.auth.transport.requests
import jwt
import pytest
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import id_token
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast.api.http import openid
from holdfast.api.http.openid import LocalKeys
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.log import Change
from holdfast.broker.push.tokens import PushTokens
from holdfast.broker.service import Broker
from holdfast.broker.signing_keys import SigningKeys
from holdfast.clock import SystemClock
from holdfast.consumer.push_auth import KeySource, KeysUnavailable, PushAuth, RemoteKeys, TokenRefused
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import OidcToken, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog

ENDPOINT = "https://endpoint.example/push"
ACCOUNT = OidcToken("pusher@local.iam.gserviceaccount.com")


@dataclass
class Served:
    broker: Broker
    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(path) as response:
            return response.status, await response.json()

    async def authorization(self) -> str:
        return await PushTokens(self.broker.signing_keys, self.url, SystemClock()).authorization(ACCOUNT, ENDPOINT)


async def _hello(request: Request) -> Response:
    return PlainTextResponse("hello")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    url = ""
    extra = [*openid.routes(broker.signing_keys, lambda: url), Route("/v1x/{name}", _hello)]
    server = PubsubServer(broker, extra_routes=extra)
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    async with aiohttp.ClientSession(url) as session:
        yield Served(broker, url, session)
    await server.stop()
    await broker.close()


# What is served.


async def test_the_configuration_leads_to_the_keys(served: Served) -> None:
    status, found = await served.get("/.well-known/openid-configuration")
    assert (status, found["issuer"]) == (200, served.url)
    assert found["id_token_signing_alg_values_supported"] == ["RS256"]
    assert found["response_types_supported"] == ["id_token"]
    assert found["subject_types_supported"] == ["public"]
    token = (await served.authorization()).removeprefix("Bearer ")
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(found["claims_supported"]) == set(claims)
    assert claims["iss"] == found["issuer"]
    status, keys = await served.get(found["jwks_uri"].removeprefix(served.url))
    assert status == 200
    assert [key["kid"] for key in keys["keys"]] == [jwt.get_unverified_header(token)["kid"]]


async def test_a_slash_at_the_end_of_the_issuer_is_kept_and_not_doubled(served: Served) -> None:
    [route, *_] = openid.routes(served.broker.signing_keys, lambda: "https://broker.example/holdfast/")
    response = await route.endpoint(Request({"type": "http", "method": "GET", "headers": []}))
    found = json.loads(response.body)
    assert found["issuer"] == "https://broker.example/holdfast/"
    assert found["jwks_uri"] == "https://broker.example/holdfast/oauth2/v3/certs"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/oauth2/v1/certs", "/oauth2/v3/certs"])
async def test_everybody_is_told_how_long_to_keep_it(served: Served, path: str) -> None:
    async with served.session.get(path) as response:
        assert response.headers["Cache-Control"] == "public, max-age=3600"
        assert response.content_type == "application/json"


async def test_both_forms_have_the_same_keys_and_nothing_private(served: Served) -> None:
    _, keys = await served.get("/oauth2/v3/certs")
    _, certificates = await served.get("/oauth2/v1/certs")
    [key] = keys["keys"]
    assert set(key) == {"kty", "alg", "use", "kid", "n", "e"}
    assert list(certificates) == [key["kid"]]
    assert certificates[key["kid"]].startswith("-----BEGIN CERTIFICATE-----\n")
    assert "PRIVATE" not in str(certificates)


async def test_keys_that_the_log_cannot_take_are_503() -> None:
    async def broken(changes: Sequence[Change]) -> None:
        raise StorageUnavailable("the disk is full")

    keys = SigningKeys(broken, SystemClock())
    _, *routes = openid.routes(keys, lambda: "")
    for route in routes:
        response = await route.endpoint(Request({"type": "http", "method": "GET", "headers": []}))
        assert response.status_code == 503
    with pytest.raises(KeysUnavailable, match="the disk is full"):
        await LocalKeys(keys).key("any")


# On one port with Pub/Sub.


async def test_pubsub_is_served_beside_it(served: Served) -> None:
    await served.broker.create_topic(Topic("projects/p/topics/orders"))
    status, found = await served.get("/v1/projects/p/topics")
    assert (status, [topic["name"] for topic in found["topics"]]) == (200, ["projects/p/topics/orders"])
    async with served.session.get("/v1x/anything") as response:
        assert await response.text() == "hello"


@pytest.mark.parametrize("path", ["/oauth2/v3/certs/", "/oauth2/other", "/.well-known/", "/oauth2", "/nothing"])
async def test_what_is_at_no_path_is_404_as_pubsub_tells_it(served: Served, path: str) -> None:
    status, body = await served.get(path)
    assert (status, body["error"]["status"]) == (404, "NOT_FOUND")


async def test_the_keys_are_for_reading(served: Served) -> None:
    async with served.session.post("/oauth2/v3/certs") as response:
        assert response.status == 405
    async with served.session.head("/oauth2/v3/certs") as response:
        assert response.status == 200


# Verifying.


async def verify(token: str, certs_url: str, audience: str = ENDPOINT) -> Any:
    """In a thread, because Google's library blocks."""
    transport = google.auth.transport.requests.Request()
    return await asyncio.to_thread(id_token.verify_token, token, transport, audience, certs_url)


@pytest.mark.parametrize("path", ["/oauth2/v1/certs", "/oauth2/v3/certs"])
async def test_googles_library_verifies_a_token(served: Served, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    token = (await served.authorization()).removeprefix("Bearer ")
    claims = await verify(token, served.url + path)
    assert (claims["aud"], claims["iss"], claims["email"]) == (ENDPOINT, served.url, ACCOUNT.service_account)
    assert claims["email_verified"] is True
    wrong = (GoogleAuthError, ValueError, jwt.PyJWTError)  # each form has its own
    with pytest.raises(wrong):
        await verify(token, served.url + path, "https://other.example")
    head, body, signature = token.split(".")
    forged = f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"
    with pytest.raises(wrong):
        await verify(forged, served.url + path)


def _local(served: Served) -> KeySource:
    return LocalKeys(served.broker.signing_keys)


def _remote(served: Served) -> KeySource:
    async def fetch() -> bytes:
        async with served.session.get("/oauth2/v3/certs") as response:
            return await response.read()

    return RemoteKeys(fetch, SystemClock())


@pytest.mark.parametrize("source", [_local, _remote])
async def test_our_consumer_verifies_a_token(served: Served, source: Callable[[Served], KeySource]) -> None:
    header = await served.authorization()
    expected = {"audience": ENDPOINT, "issuer": served.url, "email": ACCOUNT.service_account}
    await PushAuth(source(served), SystemClock(), **expected).check(header)
    with pytest.raises(TokenRefused, match=r"^aud: "):
        await PushAuth(source(served), SystemClock(), **expected | {"audience": "other"}).check(header)
    # A broker that began anew has other keys.
    other = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    foreign = await PushTokens(other.signing_keys, served.url, SystemClock()).authorization(ACCOUNT, ENDPOINT)
    with pytest.raises(TokenRefused, match=r"^kid: "):
        await PushAuth(source(served), SystemClock(), **expected).check(foreign)
    await other.close()
