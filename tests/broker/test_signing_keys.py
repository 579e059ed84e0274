"""The keys that sign push tokens, over months of a clock moved by hand, and the tokens."""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from holdfast.broker.log import Change, PutRecord
from holdfast.broker.push import tokens as push_tokens
from holdfast.broker.push.tokens import PushTokens, subject_of
from holdfast.broker.service import Broker
from holdfast.broker.signing_keys import CACHE_SECONDS, KIND, TOKEN_SECONDS, SigningKeys, certificates, key_set
from holdfast.clock import NANOSECONDS
from holdfast.errors import CorruptData, StorageUnavailable
from holdfast.model.resources import OidcToken
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.testing import ManualClock

HOUR = 3600.0
DAY = 24 * HOUR
ISSUER = "http://127.0.0.1:8085"
ENDPOINT = "https://endpoint.example/push"
ACCOUNT = OidcToken("pusher@local.iam.gserviceaccount.com")


async def restored(log: MemoryMessageLog, clock: ManualClock, key_days: float = 30) -> SigningKeys:
    """As the next process has them."""
    keys = SigningKeys(log.commit, clock, key_days)
    keys.restore((await log.load()).records)
    return keys


async def stored(log: MemoryMessageLog) -> set[str]:
    return {name for kind, name in (await log.load()).records if kind == KIND}


async def ids(keys: SigningKeys) -> list[str]:
    return [key.id for key in await keys.published()]


def keys_of(fetched: dict[str, Any]) -> dict[str, Any]:
    return {key.key_id: key.key for key in jwt.PyJWKSet.from_dict(fetched).keys if key.key_id}


# Making and keeping.


async def test_no_key_is_made_before_one_is_needed(broker: Broker, log: MemoryMessageLog) -> None:
    assert await stored(log) == set()
    key = await broker.signing_keys.current()
    assert await stored(log) == {key.id}
    assert await broker.signing_keys.published() == [key]


async def test_first_callers_at_once_get_one_key(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock)
    signing = asyncio.gather(*(keys.current() for _ in range(5)))
    publishing = asyncio.gather(*(keys.published() for _ in range(5)))
    [first] = await keys.published()
    assert await signing == [first] * 5
    assert await publishing == [[first]] * 5
    assert await stored(log) == {first.id}


async def test_a_caller_who_leaves_does_not_stop_the_key_for_the_others(
    log: MemoryMessageLog, clock: ManualClock
) -> None:
    keys = SigningKeys(log.commit, clock)
    leaving, staying = asyncio.create_task(keys.current()), asyncio.create_task(keys.current())
    await asyncio.sleep(0)
    leaving.cancel()
    key = await staying
    assert leaving.cancelled()
    assert await stored(log) == {key.id}


async def test_closing_waits_for_a_key_that_is_being_made(log: MemoryMessageLog, clock: ManualClock) -> None:
    broker = await Broker.open(log, clock, BrokerSettings())
    asking = asyncio.create_task(broker.signing_keys.current())
    await asyncio.sleep(0)
    asking.cancel()
    await broker.close()
    assert len(await stored(log)) == 1


async def test_a_key_that_could_not_be_kept_is_not_used(log: MemoryMessageLog, clock: ManualClock) -> None:
    disk = Disk(log)
    keys = SigningKeys(disk.commit, clock)
    disk.broken = True
    for ask in (keys.current, keys.published):
        with pytest.raises(StorageUnavailable):
            await ask()
    disk.broken = False
    key = await keys.current()
    assert await stored(log) == {key.id}


class Disk:
    def __init__(self, log: MemoryMessageLog) -> None:
        self.broken = False
        self.commits = 0
        self._log = log

    async def commit(self, changes: Sequence[Change]) -> None:
        self.commits += 1
        if self.broken:
            raise StorageUnavailable("the disk is full")
        await self._log.commit(changes)


async def test_a_restart_keeps_the_key(tmp_path: Path, clock: ManualClock) -> None:
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
    for _ in range(2):
        log = await SqliteMessageLog.open(tmp_path / "broker.db")
        broker = await Broker.open(log, clock, BrokerSettings())
        try:
            header = await PushTokens(broker.signing_keys, ISSUER, clock).authorization(ACCOUNT, ENDPOINT)
            published = await broker.signing_keys.published()
            seen.append((header, certificates(published), key_set(published)))
        finally:
            await broker.close()
            await log.close()
    assert seen[0] == seen[1]


async def test_the_days_of_a_key_are_passed_on_by_the_broker(log: MemoryMessageLog, clock: ManualClock) -> None:
    broker = await Broker.open(log, clock, BrokerSettings(), key_days=3)
    first = await broker.signing_keys.current()
    clock.advance(3 * DAY)  # nobody asked for the next one in time: it waits its day from now on
    assert len(await ids(broker.signing_keys)) == 2
    clock.advance(1 * DAY)
    assert await broker.signing_keys.current() != first
    await broker.close()


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"private_key": "x", "certificate": "", "signs_from_ns": 1}'])
async def test_a_damaged_key_is_told_at_the_start(log: MemoryMessageLog, clock: ManualClock, value: bytes) -> None:
    await log.commit([PutRecord(KIND, "broken-key", value)])
    with pytest.raises(CorruptData, match="broken-key"):
        await Broker.open(log, clock, BrokerSettings())


async def test_a_key_does_not_show_itself(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock)
    key = await keys.current()
    numbers = key.private_key.private_numbers()
    shown = f"{key!r} {key_set([key])} {certificates([key])}"
    assert str(numbers.p) not in shown
    assert "PRIVATE" not in shown
    assert set(key_set([key])["keys"][0]) == {"kty", "alg", "use", "kid", "n", "e"}


async def test_both_public_forms_are_of_the_same_key(log: MemoryMessageLog, clock: ManualClock) -> None:
    key = await SigningKeys(log.commit, clock).current()
    [(key_id, pem)] = certificates([key]).items()
    certificate = x509.load_pem_x509_certificate(pem.encode())
    public = certificate.public_key()
    assert isinstance(public, RSAPublicKey)
    certificate.verify_directly_issued_by(certificate)
    assert public.public_numbers() == keys_of(key_set([key]))[key_id].public_numbers()
    assert public.key_size == 2048
    assert certificate.not_valid_before_utc.timestamp() == clock.now_ns() // NANOSECONDS


# Replacing.


class World:
    """Everybody around the keys: signs tokens, fetches key sets, and knows which of both still count."""

    def __init__(self, log: MemoryMessageLog, clock: ManualClock, key_days: float) -> None:
        self.log, self.clock, self.key_days = log, clock, key_days
        self.keys = SigningKeys(log.commit, clock, key_days)
        self.signers: list[str] = []
        self._tokens: deque[tuple[int, str]] = deque()
        self._key_sets: deque[tuple[int, dict[str, Any]]] = deque()
        self._verified: set[tuple[str, str]] = set()

    async def restart(self) -> None:
        self.keys = await restored(self.log, self.clock, self.key_days)

    async def sign(self) -> None:
        header = await PushTokens(self.keys, ISSUER, self.clock).authorization(ACCOUNT, ENDPOINT)
        self._tokens.append((self.clock.now_ns(), header.removeprefix("Bearer ")))
        if self.signers[-1:] != [(await self.keys.current()).id]:
            self.signers.append((await self.keys.current()).id)

    async def fetch(self) -> None:
        self._key_sets.append((self.clock.now_ns(), keys_of(key_set(await self.keys.published()))))

    async def check(self) -> None:
        """Every token that is not expired, against every key set that somebody may still have."""
        now_ns = self.clock.now_ns()
        _drop_older(self._tokens, now_ns - TOKEN_SECONDS * NANOSECONDS)
        _drop_older(self._key_sets, now_ns - CACHE_SECONDS * NANOSECONDS)
        for _, token in self._tokens:
            key_id = jwt.get_unverified_header(token)["kid"]
            for _, fetched in self._key_sets:
                assert key_id in fetched
                self._verify(token, fetched[key_id])
        assert 1 <= len(await stored(self.log)) <= 2
        assert all(len(fetched) in (1, 2) for _, fetched in self._key_sets)

    def _verify(self, token: str, key: RSAPublicKey) -> None:
        """Once is enough for the same two."""
        pair = (token, hex(key.public_numbers().n))
        if pair not in self._verified:
            jwt.decode(token, key, ["RS256"], {"verify_exp": False, "verify_aud": False})
            self._verified.add(pair)


def _drop_older(kept: deque[tuple[int, Any]], limit_ns: int) -> None:
    while kept and kept[0][0] < limit_ns:
        kept.popleft()


@pytest.mark.parametrize(("key_days", "days"), [(30, 100), (1, 6)])
async def test_each_token_fits_each_key_set_at_every_time(
    log: MemoryMessageLog, clock: ManualClock, key_days: float, days: int
) -> None:
    world = World(log, clock, key_days)
    for step in range(days * 32):
        await world.sign()
        await world.fetch()
        await world.check()
        if step % 91 == 90:
            await world.restart()
        clock.advance(DAY / 32)
    assert len(world.signers) == len(set(world.signers)) == days // key_days + (1 if days % key_days else 0)


@pytest.mark.parametrize("seed", range(3))
async def test_so_it_is_when_nobody_asks_for_long(log: MemoryMessageLog, clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    world = World(log, clock, 30)
    await world.fetch()
    for _ in range(300):
        for act in chance.sample([world.sign, world.fetch], chance.randint(1, 2)):
            await act()
        await world.check()
        if chance.random() < 0.1:
            await world.restart()
        clock.advance(chance.choice([1, HOUR / 2, HOUR, 2 * HOUR, DAY, 7 * DAY]) * chance.random())
    assert len(world.signers) > 3


async def test_keys_change_where_somebody_only_signs(log: MemoryMessageLog, clock: ManualClock) -> None:
    tokens = PushTokens(SigningKeys(log.commit, clock, 30), ISSUER, clock)
    signers = set()
    for _ in range(100 * 4):
        header = await tokens.authorization(ACCOUNT, ENDPOINT)
        signers.add(jwt.get_unverified_header(header.removeprefix("Bearer "))["kid"])
        assert 1 <= len(await stored(log)) <= 2
        clock.advance(6 * HOUR)
    assert len(signers) == 4


async def test_keys_change_where_somebody_only_serves(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock, 30)
    served: list[str] = []
    for _ in range(100 * 4):
        served += [key_id for key_id in await ids(keys) if key_id not in served]
        assert set(await ids(keys)) == await stored(log)
        clock.advance(6 * HOUR)
    assert len(served) == 4


async def test_a_key_is_published_a_day_before_it_signs_and_two_hours_after(
    log: MemoryMessageLog, clock: ManualClock
) -> None:
    keys = SigningKeys(log.commit, clock, 30)
    first = await keys.current()
    clock.advance(29 * DAY - 1)
    assert await ids(keys) == [first.id]
    clock.advance(1)
    [_, second] = await keys.published()
    assert await keys.current() == first
    clock.advance(DAY - 1)
    assert await keys.current() == first
    clock.advance(1)
    assert await keys.current() == second
    clock.advance(2 * HOUR - 1)
    assert await ids(keys) == [first.id, second.id]
    clock.advance(1)
    assert await ids(keys) == [second.id] == list(await stored(log))
    # The third counts from when the second began.
    clock.advance(29 * DAY - 2 * HOUR - 1)
    assert await ids(keys) == [second.id]
    clock.advance(1)
    assert len(await ids(keys)) == 2


async def test_a_restart_in_the_middle_keeps_both_keys_and_their_times(
    log: MemoryMessageLog, clock: ManualClock
) -> None:
    keys = SigningKeys(log.commit, clock, 30)
    first = await keys.current()
    clock.advance(29 * DAY)
    both = await ids(keys)
    keys = await restored(log, clock)
    assert await ids(keys) == both
    assert (await keys.current()).id == first.id
    clock.advance(DAY)
    keys = await restored(log, clock)
    assert await ids(keys) == both
    assert (await keys.current()).id == both[1]


async def test_callers_at_once_share_the_next_key_too(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock, 30)
    first = await keys.current()
    clock.advance(29 * DAY)
    assert await asyncio.gather(*(keys.current() for _ in range(10))) == [first] * 10
    assert len(await stored(log)) == 2


async def test_the_old_key_goes_on_while_the_log_cannot_take_the_next(
    log: MemoryMessageLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(log)
    keys = SigningKeys(disk.commit, clock, 30)
    first = await keys.current()
    clock.advance(30 * DAY)
    disk.broken = True
    for _ in range(10):
        assert await keys.current() == first
    assert disk.commits == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    disk.broken = False
    clock.advance(60)
    assert await keys.current() == first
    assert len(await ids(keys)) == 2
    clock.advance(DAY)
    assert await keys.current() != first


async def test_a_clock_that_was_set_back_stops_nothing(log: MemoryMessageLog, clock: ManualClock) -> None:
    key = await SigningKeys(log.commit, clock).current()
    earlier = ManualClock(clock.now_ns() - round(DAY) * NANOSECONDS)
    assert (await (await restored(log, earlier)).current()).id == key.id


async def test_asking_writes_nothing_when_nothing_is_due(log: MemoryMessageLog, clock: ManualClock) -> None:
    disk = Disk(log)
    keys = SigningKeys(disk.commit, clock)
    for _ in range(100):
        await keys.current()
        await keys.published()
        clock.advance(HOUR)
    assert disk.commits == 1


async def test_nobody_waits_for_anything_when_nothing_is_due(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock)
    await keys.current()
    with pytest.raises(StopIteration):  # a coroutine that is done at its first step
        keys.current().send(None)
    with pytest.raises(StopIteration):
        keys.published().send(None)


# Tokens.


@pytest.fixture
def tokens(log: MemoryMessageLog, clock: ManualClock) -> PushTokens:
    return PushTokens(SigningKeys(log.commit, clock, 30), ISSUER, clock)


def read(header: str) -> tuple[dict[str, Any], dict[str, Any]]:
    scheme, token = header.split(" ")
    assert scheme == "Bearer"
    return jwt.get_unverified_header(token), jwt.decode(token, options={"verify_signature": False})


async def test_a_token_has_googles_claims(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock)
    clock.advance(0.9)  # times are whole seconds, and never ahead of the clock
    seconds = clock.now_ns() // NANOSECONDS
    head, claims = read(await PushTokens(keys, ISSUER, clock).authorization(ACCOUNT, ENDPOINT))
    assert head == {"alg": "RS256", "typ": "JWT", "kid": (await keys.current()).id}
    subject = claims["sub"]
    assert re.fullmatch(r"1\d{20}", subject)
    assert claims == {
        "aud": ENDPOINT,
        "azp": subject,
        "email": ACCOUNT.service_account,
        "email_verified": True,
        "exp": seconds + 3600,
        "iat": seconds,
        "iss": ISSUER,
        "sub": subject,
    }


def test_the_subject_of_an_account_never_changes() -> None:
    assert subject_of(ACCOUNT.service_account) == "113951273976561220738"
    assert subject_of("other@example.com") != subject_of(ACCOUNT.service_account)


async def test_an_audience_that_is_named_is_the_audience(tokens: PushTokens) -> None:
    _, claims = read(await tokens.authorization(OidcToken("a@example.com", "my-audience"), ENDPOINT))
    assert claims["aud"] == "my-audience"


async def test_a_token_is_used_for_half_an_hour(tokens: PushTokens, clock: ManualClock) -> None:
    first = await tokens.authorization(ACCOUNT, ENDPOINT)
    clock.advance(HOUR / 2 - 1)
    assert await tokens.authorization(ACCOUNT, ENDPOINT) is first
    clock.advance(1)
    second = await tokens.authorization(ACCOUNT, ENDPOINT)
    assert read(second)[1]["iat"] == read(first)[1]["iat"] + 1800
    assert await tokens.authorization(ACCOUNT, ENDPOINT) is second


async def test_accounts_and_audiences_have_their_own(tokens: PushTokens) -> None:
    asked = [
        (OidcToken("a@example.com"), "https://one.example"),
        (OidcToken("a@example.com"), "https://two.example"),
        (OidcToken("b@example.com"), "https://one.example"),
    ]
    for oidc, endpoint in asked * 2:
        _, claims = read(await tokens.authorization(oidc, endpoint))
        assert (claims["email"], claims["aud"]) == (oidc.service_account, endpoint)


async def test_a_new_key_signs_from_its_first_second(log: MemoryMessageLog, clock: ManualClock) -> None:
    keys = SigningKeys(log.commit, clock, 30)
    tokens = PushTokens(keys, ISSUER, clock)
    first = await keys.current()
    clock.advance(29 * DAY)
    await keys.published()
    clock.advance(DAY - 60)
    assert read(await tokens.authorization(ACCOUNT, ENDPOINT))[0]["kid"] == first.id
    clock.advance(60)
    assert read(await tokens.authorization(ACCOUNT, ENDPOINT))[0]["kid"] == (await keys.current()).id != first.id


async def test_tokens_that_are_kept_are_bounded_and_the_longest_unused_goes(
    tokens: PushTokens, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_tokens, "MOST_TOKENS", 2)
    first = await tokens.authorization(ACCOUNT, "https://one.example")
    second = await tokens.authorization(ACCOUNT, "https://two.example")
    clock.advance(1)
    assert await tokens.authorization(ACCOUNT, "https://one.example") == first
    await tokens.authorization(ACCOUNT, "https://three.example")
    assert await tokens.authorization(ACCOUNT, "https://one.example") == first
    assert await tokens.authorization(ACCOUNT, "https://two.example") != second
