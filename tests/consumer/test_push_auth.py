"""Who may push: what a token must be, and where the keys come from."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer import push_auth
from holdfast.consumer.push_auth import GOOGLE, KeysUnavailable, PushAuth, RemoteKeys, TokenRefused
from holdfast.testing import ManualClock
from tests.support.push_tokens import AUDIENCE, EMAIL, ISSUER, KEY_ID, REFUSED, OneKey, bearer, jwk, key_set, refused


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def keys() -> OneKey:
    return OneKey()


@pytest.fixture
def auth(keys: OneKey, clock: ManualClock) -> PushAuth:
    return PushAuth(keys, clock, audience=AUDIENCE, issuer=ISSUER, email=EMAIL)


def now(clock: ManualClock) -> float:
    return clock.now_ns() / NANOSECONDS


# Tokens.


async def test_a_good_token_passes(auth: PushAuth, clock: ManualClock) -> None:
    await auth.check(bearer(now(clock)))


async def test_the_scheme_may_be_written_in_any_case(auth: PushAuth, clock: ManualClock) -> None:
    await auth.check(bearer(now(clock)).replace("Bearer", "bEARER"))


@pytest.mark.parametrize("name", REFUSED)
async def test_every_other_token_is_refused(auth: PushAuth, clock: ManualClock, name: str) -> None:
    header, what = refused(now(clock))[name]
    for _ in range(2):  # the second time as well: nothing of a refusal may be remembered as good
        with pytest.raises(TokenRefused) as error:
            await auth.check(header)
        assert str(error.value).startswith(f"{what}: ")
        assert len(str(error.value)) < 100
        for part in header.removeprefix("Bearer ").split("."):
            assert len(part) < 10 or part not in str(error.value)


async def test_clocks_may_differ_a_little(auth: PushAuth, clock: ManualClock) -> None:
    await auth.check(bearer(now(clock), iat=int(now(clock)) + 10, nbf=int(now(clock)) + 10))
    await auth.check(bearer(now(clock), exp=int(now(clock)) - 9))
    for claim, seconds in (("iat", 11), ("nbf", 11), ("exp", -10)):
        with pytest.raises(TokenRefused, match=f"^{claim}: "):
            await auth.check(bearer(now(clock), **{claim: int(now(clock)) + seconds}))


@pytest.mark.parametrize("configured", [GOOGLE, "accounts.google.com"])
@pytest.mark.parametrize("named", [GOOGLE, "accounts.google.com"])
async def test_google_has_two_names(keys: OneKey, clock: ManualClock, configured: str, named: str) -> None:
    auth = PushAuth(keys, clock, audience=AUDIENCE, issuer=configured)
    await auth.check(bearer(now(clock), iss=named))
    with pytest.raises(TokenRefused, match=r"^iss: "):
        await auth.check(bearer(now(clock), iss=ISSUER))


async def test_any_account_passes_where_none_is_expected(keys: OneKey, clock: ManualClock) -> None:
    auth = PushAuth(keys, clock, audience=AUDIENCE, issuer=ISSUER)
    await auth.check(bearer(now(clock), email="other@example.com"))
    await auth.check(bearer(now(clock), email=None, email_verified=None))


def test_an_audience_is_needed(keys: OneKey, clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="audience"):
        PushAuth(keys, clock, audience="", issuer=ISSUER)


async def test_a_verified_token_is_remembered_until_it_ends(auth: PushAuth, keys: OneKey, clock: ManualClock) -> None:
    header = bearer(now(clock))
    for _ in range(100):
        await auth.check(header)
    assert keys.asked == 1
    clock.advance(3600 + 9)
    await auth.check(header)
    clock.advance(1)
    for _ in range(2):
        with pytest.raises(TokenRefused, match=r"^exp: "):
            await auth.check(header)


async def test_what_is_remembered_is_bounded_and_the_longest_unused_goes(
    auth: PushAuth, keys: OneKey, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_auth, "MOST_VERIFIED", 2)
    first, second, third = (bearer(now(clock), sub=str(n)) for n in range(3))
    for header in (first, second, first, third):
        await auth.check(header)
    assert keys.asked == 3
    await auth.check(first)
    assert keys.asked == 3
    await auth.check(second)
    assert keys.asked == 4


# Keys behind a URL.


class Url:
    """What is behind it, how often it was fetched, and a gate that holds fetches while it is shut."""

    def __init__(self, *bodies: bytes | Exception) -> None:
        self.body: bytes | Exception = bodies[0] if bodies else key_set(jwk(1, KEY_ID))
        self.fetched = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self) -> bytes:
        self.fetched += 1
        await self.gate.wait()
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


async def known(keys: RemoteKeys, key_id: str) -> bool:
    return await keys.key(key_id) is not None


async def test_keys_are_fetched_once_an_hour(clock: ManualClock) -> None:
    url = Url()
    keys = RemoteKeys(url.fetch, clock)
    assert url.fetched == 0
    for _ in range(10):
        assert await known(keys, KEY_ID)
    clock.advance(3599)
    assert await known(keys, KEY_ID)
    assert url.fetched == 1
    clock.advance(1)
    assert await known(keys, KEY_ID)
    assert url.fetched == 2


async def test_a_key_that_is_gone_after_an_hour_counts_no_more(clock: ManualClock) -> None:
    url = Url()
    keys = RemoteKeys(url.fetch, clock)
    assert await known(keys, KEY_ID)
    url.body = key_set(jwk(2, "key-2"))
    clock.advance(3600)
    assert not await known(keys, KEY_ID)
    assert await known(keys, "key-2")


async def test_an_unknown_key_is_looked_for_once_in_thirty_seconds(clock: ManualClock) -> None:
    url = Url()
    keys = RemoteKeys(url.fetch, clock)
    assert await known(keys, KEY_ID)
    url.body = key_set(jwk(1, KEY_ID), jwk(2, "key-2"))
    clock.advance(29.9)
    for number in range(10):
        assert not await known(keys, f"made-up-{number}")
    assert url.fetched == 1
    clock.advance(0.1)
    assert await known(keys, "key-2")
    for number in range(10):
        assert not await known(keys, f"made-up-{number}")
    assert url.fetched == 2


async def test_all_who_wait_share_one_fetch_and_one_who_leaves_does_not_end_it(clock: ManualClock) -> None:
    url = Url()
    url.gate.clear()
    keys = RemoteKeys(url.fetch, clock)
    waiting = [asyncio.create_task(known(keys, KEY_ID)) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    url.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [True] * 9
    assert waiting[0].cancelled()
    assert url.fetched == 1


async def test_old_keys_go_on_when_a_fetch_fails(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    url = Url()
    keys = RemoteKeys(url.fetch, clock)
    assert await known(keys, KEY_ID)
    url.body = ConnectionError("nobody there")
    clock.advance(3600)
    for _ in range(10):
        assert await known(keys, KEY_ID)
    assert url.fetched == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    # But of a key that is not among them, nobody can say anything now.
    with pytest.raises(KeysUnavailable):
        await keys.key("key-2")
    url.body = key_set(jwk(1, KEY_ID), jwk(2, "key-2"))
    clock.advance(5)
    assert await known(keys, "key-2")
    assert url.fetched == 3


@pytest.mark.parametrize(
    "body",
    [
        ConnectionError("nobody there"),
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1, {}, {"kid": "key-1"}, {"kid": "key-1", "kty": "RSA"}]}',
        b"[" * 100_000,
        key_set({**jwk(1, KEY_ID), "use": "enc"}),
        key_set({**jwk(1, KEY_ID), "alg": "RS512"}),
        key_set({**jwk(1, KEY_ID), "kty": "oct", "k": "c2VjcmV0"}),
        key_set({**jwk(1, KEY_ID), "n": "AQAB"}),
        key_set({**jwk(1, KEY_ID), "n": "_" * 170 + "w"}),  # 1024 bits
        key_set({**jwk(1, KEY_ID), "n": 17}),
    ],
)
async def test_keys_that_cannot_be_used_are_none(clock: ManualClock, body: bytes | Exception) -> None:
    url = Url(body)
    keys = RemoteKeys(url.fetch, clock)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await keys.key(KEY_ID)
    assert url.fetched == 1
    url.body = key_set(jwk(1, KEY_ID))
    clock.advance(5)
    assert await known(keys, KEY_ID)


async def test_keys_of_other_kinds_are_passed_over(clock: ManualClock) -> None:
    elliptic = {"kid": "e", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}
    bare = {name: value for name, value in jwk(2, "bare").items() if name not in ("alg", "use")}
    keys = RemoteKeys(Url(key_set(elliptic, jwk(1, KEY_ID), bare)).fetch, clock)
    assert await known(keys, KEY_ID)
    assert await known(keys, "bare")
    assert not await known(keys, "e")


async def test_a_fetch_that_hangs_is_given_up(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_auth, "FETCH_SECONDS", 0.001)
    url = Url()
    url.gate.clear()
    with pytest.raises(KeysUnavailable):
        await RemoteKeys(url.fetch, clock).key(KEY_ID)


async def test_a_token_that_nobody_can_judge_is_not_refused(clock: ManualClock) -> None:
    url = Url(ConnectionError("nobody there"))
    auth = PushAuth(RemoteKeys(url.fetch, clock), clock, audience=AUDIENCE, issuer=ISSUER, email=EMAIL)
    with pytest.raises(KeysUnavailable):
        await auth.check(bearer(now(clock)))
    url.body = json.dumps({"keys": [jwk(1, KEY_ID)]}).encode()
    clock.advance(5)
    await auth.check(bearer(now(clock)))


async def test_tokens_that_are_none_of_ours_cause_no_fetch(clock: ManualClock) -> None:
    url = Url()
    auth = PushAuth(RemoteKeys(url.fetch, clock), clock, audience=AUDIENCE, issuer=ISSUER, email=EMAIL)
    for header, what in refused(now(clock)).values():
        if what in ("Authorization", "alg"):
            with pytest.raises(TokenRefused):
                await auth.check(header)
    assert url.fetched == 0
