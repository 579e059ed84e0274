"""Who may push: the token of a push request is checked against the issuer's keys and against what we expect of it.

Knows nothing of HTTP but the Authorization header's text, and fetches nothing itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import RSAAlgorithm

from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.consumer")

GOOGLE = "https://accounts.google.com"
GOOGLE_KEYS_URL = "https://www.googleapis.com/oauth2/v3/certs"

# Google's tokens have had both.
_GOOGLE_ISSUERS = frozenset({GOOGLE, "accounts.google.com"})

# The only one, whatever a token's header says: a token must not choose how it is judged.
ALGORITHM = "RS256"
SMALLEST_KEY_BITS = 2048

# How far the sender's clock may be from ours. Machines that keep their time at all are well within.
LEEWAY_SECONDS = 10

LATEST_TIME = 1e12  # far beyond any; leaves out what JSON takes for a number and arithmetic does not

# A token is about 1 KB. Nothing longer is even looked at.
LONGEST_HEADER = 8192
_BEARER = re.compile(r"bearer ([\w-]+\.[\w-]+\.[\w-]+)", re.ASCII | re.IGNORECASE)

# A sender has one token for half an hour; these are those of many senders, at about 1 KB each.
MOST_VERIFIED = 1000

KEYS_KEPT_SECONDS = 3600

# An unknown key id has the keys fetched again, but anyone can make up such ids: at most once in so long.
FETCH_PAUSE_SECONDS = 30

# After a fetch that failed. Short, because pushes may be waiting for it.
PAUSE_AFTER_ERROR_SECONDS = 5
FETCH_SECONDS = 10


class TokenRefused(HoldfastError):
    """401. The text names what is wrong and never holds anything of the token. `expected` is for our log alone."""

    def __init__(self, what: str, why: str, expected: str = "") -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.expected = expected


class KeysUnavailable(HoldfastError):
    """503. The token may be good; without the issuer's keys nobody can tell."""


class KeySource(Protocol):
    async def key(self, key_id: str) -> RSAPublicKey | None:
        """None when the issuer has no such key. Raises KeysUnavailable when that cannot be known now."""
        ...


class PushAuth:
    def __init__(self, keys: KeySource, clock: Clock, *, audience: str, issuer: str = GOOGLE, email: str = "") -> None:
        """`email` is the service account that a token must name; empty: any."""
        if not audience:
            raise ValueError("an audience is needed: without one, a token for anybody else would do")
        self._keys = keys
        self._clock = clock
        self._audience = audience
        self._issuer = issuer
        self._email = email
        self._verified: OrderedDict[str, float] = OrderedDict()  # header -> when its token ends, in seconds

    async def check(self, authorization: str) -> None:
        """`authorization` is the header, empty when there is none. Raises TokenRefused or KeysUnavailable."""
        ends = self._verified.get(authorization)
        if ends is not None:
            if self._now() < ends:
                self._verified.move_to_end(authorization)
                return
            del self._verified[authorization]
        claims = await self._signed_claims(_bearer_token(authorization))
        self._check_claims(claims)
        self._verified[authorization] = claims["exp"] + LEEWAY_SECONDS
        if len(self._verified) > MOST_VERIFIED:
            self._verified.popitem(last=False)

    async def _signed_claims(self, token: str) -> dict[str, Any]:
        key = await self._keys.key(_key_id(token))
        if key is None:
            raise TokenRefused("kid", "names no key of the issuer")
        try:
            # The claims are ours to check: by our clock, and each with its own reason.
            return jwt.decode(token, key, algorithms=[ALGORITHM], options=_SIGNATURE_ONLY)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefused("signature", "is not the issuer's") from None

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        now = self._now()
        issuers = _GOOGLE_ISSUERS if self._issuer in _GOOGLE_ISSUERS else {self._issuer}
        # isinstance first: what is no text may not be hashable either.
        if not isinstance(claims.get("iss"), str) or claims["iss"] not in issuers:
            raise TokenRefused("iss", "is not the expected issuer", self._issuer)
        if claims.get("aud") != self._audience:
            raise TokenRefused("aud", "is not the expected audience", self._audience)
        if now >= _time(claims, "exp") + LEEWAY_SECONDS:
            raise TokenRefused("exp", "the token has expired")
        if now < _time(claims, "iat") - LEEWAY_SECONDS:
            raise TokenRefused("iat", "the token is from the future")
        if "nbf" in claims and now < _time(claims, "nbf") - LEEWAY_SECONDS:
            raise TokenRefused("nbf", "the token is not valid yet")
        if self._email:
            self._check_email(claims)

    def _check_email(self, claims: Mapping[str, Any]) -> None:
        if claims.get("email") != self._email:
            raise TokenRefused("email", "is not the expected account", self._email)
        if claims.get("email_verified") is not True:
            raise TokenRefused("email_verified", "is not true")

    def _now(self) -> float:
        return self._clock.now_ns() / NANOSECONDS


_SIGNATURE_ONLY: jwt.types.Options = {
    "verify_signature": True,
    "verify_aud": False,
    "verify_exp": False,
    "verify_iat": False,
    "verify_iss": False,
    "verify_jti": False,
    "verify_nbf": False,
    "verify_sub": False,
}


def _bearer_token(authorization: str) -> str:
    if not authorization:
        raise TokenRefused("Authorization", "is missing: consumer.auth.push says that push requests need a token")
    if len(authorization) > LONGEST_HEADER:
        raise TokenRefused("Authorization", f"is longer than {LONGEST_HEADER} characters")
    found = _BEARER.fullmatch(authorization)
    if found is None:
        raise TokenRefused("Authorization", "is not Bearer, a space and a signed JWT")
    return found[1]


def _key_id(token: str) -> str:
    """Judged before any key is looked for, so that only tokens of our kind can cause a fetch."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenRefused("Authorization", "is not Bearer, a space and a signed JWT") from None
    if header.get("alg") != ALGORITHM:
        raise TokenRefused("alg", f"is not {ALGORITHM}")
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise TokenRefused("kid", "is missing")
    return key_id


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST_TIME:
        raise TokenRefused(name, "is missing or no time")
    return value


class RemoteKeys:
    """The keys behind a URL, fetched when needed and kept for an hour. Old ones go on when a fetch fails."""

    def __init__(self, fetch: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        """`fetch` gives the body of a JWKS document, or raises; how long it may take is bounded here."""
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, RSAPublicKey] = {}
        self._stale_ns = 0
        self._next_fetch_ns = 0
        self._failed = True  # the last fetch; as if, before the first
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> RSAPublicKey | None:
        if self._clock.now_ns() >= self._stale_ns or key_id not in self._keys:
            await self._fetch_if_allowed()
        found = self._keys.get(key_id)
        if found is None and self._failed:
            raise KeysUnavailable("the issuer's keys cannot be fetched")
        return found

    async def _fetch_if_allowed(self) -> None:
        """One fetch for all who need it at the same time; it goes on when one of them goes away."""
        if self._fetching is None:
            if self._clock.now_ns() < self._next_fetch_ns:
                return
            self._fetching = asyncio.create_task(self._refresh())
        await asyncio.shield(self._fetching)

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                self._keys = _parsed(await self._fetch())
            self._failed = False
        except Exception as error:  # noqa: BLE001 - whatever the way to the keys has to say: there are none now
            self._failed = True
            text = str(error) or type(error).__name__
            log.warning("the keys that verify push tokens could not be fetched", extra={"fields": {"error": text}})
        finally:
            self._fetching = None
        now_ns = self._clock.now_ns()
        pause_seconds = PAUSE_AFTER_ERROR_SECONDS if self._failed else FETCH_PAUSE_SECONDS
        self._next_fetch_ns = now_ns + pause_seconds * NANOSECONDS
        if not self._failed:
            self._stale_ns = now_ns + KEYS_KEPT_SECONDS * NANOSECONDS


def _parsed(body: bytes) -> dict[str, RSAPublicKey]:
    """The keys that we can use. Others are passed over, as RFC 7517 wants; a set without any is an error."""
    document = json.loads(body)
    items = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ValueError("it is no JWKS document")
    keys = {item["kid"]: key for item in items if (key := _usable(item)) is not None}
    if not keys:
        raise ValueError(f"the JWKS document has no {ALGORITHM} key")
    return keys


def _usable(item: Any) -> RSAPublicKey | None:
    if not isinstance(item, dict) or not isinstance(item.get("kid"), str):
        return None
    if item.get("kty") != "RSA" or item.get("use", "sig") != "sig" or item.get("alg", ALGORITHM) != ALGORITHM:
        return None
    try:
        key = RSAAlgorithm.from_jwk(item)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return key if isinstance(key, RSAPublicKey) and key.key_size >= SMALLEST_KEY_BITS else None
