"""The keys that sign the tokens of push requests: made when first needed, kept in the log, replaced in time.

A key's life:

    made ── published, waits ──▶ signs ── its successor signs ──▶ published only ──▶ deleted

It waits so long that whoever keeps a copy of the key set has it before the first token comes, and it stays published
until the last token that it signed is worthless. Nothing here runs by itself: whoever signs or publishes moves it on.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from holdfast.broker.log import Change, DeleteRecord, PutRecord
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import CorruptData, StorageUnavailable
from holdfast.settings import PushSettings

log = logging.getLogger("holdfast.broker.push")

KIND = "signing_key"  # of the log's records

DEFAULT_KEY_DAYS = PushSettings().key_days

# How long a token is good: Google's own.
TOKEN_SECONDS = 3600

# How long others may keep a copy of the key set; they are told so when they fetch it.
CACHE_SECONDS = 3600

# A new key is published so long before it signs: for those who keep copies longer than they are told to. With keys that
# live for a few days it is less, so that never more than two are published.
LONGEST_WAIT_SECONDS = 24 * 3600
WAIT_SHARE = 1 / 3

# When the log could not take a new key, the old one goes on and this is the pause before the next try.
PAUSE_AFTER_ERROR_SECONDS = 60

KEY_BITS = 2048
PUBLIC_EXPONENT = 65537
KEY_ID_DIGITS = 40  # as long as Google's

# RFC 5280's way of saying that a certificate has no end of its own: the key set says which keys count.
NO_END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)

Commit: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str
    signs_from_ns: int
    certificate: str  # self-signed, PEM
    private_key: rsa.RSAPrivateKey = field(repr=False)

    @property
    def public_key(self) -> rsa.RSAPublicKey:
        return self.private_key.public_key()


class SigningKeys:
    def __init__(self, commit: Commit, clock: Clock, key_days: float = DEFAULT_KEY_DAYS) -> None:
        """`commit` is MessageLog.commit."""
        self._keys: list[SigningKey] = []  # in the order in which they sign
        self._commit = commit
        self._clock = clock
        period_seconds = key_days * 24 * 3600
        self._period_ns = round(period_seconds * NANOSECONDS)
        self._wait_ns = round(min(LONGEST_WAIT_SECONDS, period_seconds * WAIT_SHARE) * NANOSECONDS)
        self._next_look_ns = 0
        self._looking: asyncio.Task[None] | None = None

    def restore(self, records: Mapping[tuple[str, str], bytes]) -> None:
        """`records` are those of the log; other kinds are passed over."""
        self._keys = _in_order([_decoded(name, value) for (kind, name), value in records.items() if kind == KIND])

    async def current(self) -> SigningKey:
        """The one to sign with. Does not wait for anything, but for the moments when a key is made or deleted.

        Raises StorageUnavailable when there is none yet and the log cannot take one.
        """
        await self._bring_up_to_date()
        now_ns = self._clock.now_ns()
        # The first one also when its time has not come: a clock that was set back must not stop everything.
        return next((key for key in reversed(self._keys) if key.signs_from_ns <= now_ns), self._keys[0])

    async def published(self) -> list[SigningKey]:
        """Those whose tokens may be around, and the one that is next: one or two. Raises as `current` does."""
        await self._bring_up_to_date()
        return list(self._keys)

    async def close(self) -> None:
        """Waits for a key that is just being made, before its log is closed."""
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _bring_up_to_date(self) -> None:
        if self._clock.now_ns() < self._next_look_ns:
            return
        # A task, so that all who come now wait for the same key, and that it is finished even if they go away:
        # cancelled between the disk and the memory, it would leave the two different.
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            task.exception()  # looked at, whoever waits

    async def _look(self) -> None:
        now_ns = self._clock.now_ns()
        gone = [old for old, new in zip(self._keys, self._keys[1:], strict=False) if self._ends_ns(new) <= now_ns]
        try:
            made = await self._made(now_ns)
            changes: list[Change] = [DeleteRecord(KIND, key.id) for key in gone]
            changes += [_record(key) for key in made]
            if changes:
                await self._commit(changes)
        except StorageUnavailable as error:
            if not self._keys:
                raise
            log.warning("the next signing key could not be kept", extra={"fields": {"error": str(error)}})
            self._next_look_ns = now_ns + PAUSE_AFTER_ERROR_SECONDS * NANOSECONDS
            return
        self._keys = _in_order([key for key in self._keys if key not in gone] + made)
        self._next_look_ns = min([self._next_made_ns(), *(self._ends_ns(new) for new in self._keys[1:])])

    async def _made(self, now_ns: int) -> list[SigningKey]:
        if not self._keys:
            return [await asyncio.to_thread(_make, now_ns, now_ns)]
        if now_ns < self._next_made_ns():
            return []
        # After its time when nobody asked in between. Whoever fetches the key set from now on still gets it in time.
        signs_from_ns = max(self._keys[-1].signs_from_ns + self._period_ns, now_ns + self._wait_ns)
        return [await asyncio.to_thread(_make, now_ns, signs_from_ns)]

    def _next_made_ns(self) -> int:
        return self._keys[-1].signs_from_ns + self._period_ns - self._wait_ns

    @staticmethod
    def _ends_ns(successor: SigningKey) -> int:
        """When nobody can hold a token of the key before this one any more."""
        return successor.signs_from_ns + (TOKEN_SECONDS + CACHE_SECONDS) * NANOSECONDS


# The public forms.


def key_set(keys: Iterable[SigningKey]) -> dict[str, Any]:
    """A JWKS (RFC 7517)."""
    return {"keys": [_jwk(key) for key in keys]}


def certificates(keys: Iterable[SigningKey]) -> dict[str, str]:
    """PEM certificates by key id, as Google's /oauth2/v1/certs has them."""
    return {key.id: key.certificate for key in keys}


def _jwk(key: SigningKey) -> dict[str, str]:
    numbers = key.public_key.public_numbers()
    return {
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "kid": key.id,
        "n": _base64url(numbers.n),
        "e": _base64url(numbers.e),
    }


def _base64url(number: int) -> str:
    octets = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


# Making and keeping.


def _make(now_ns: int, signs_from_ns: int) -> SigningKey:
    """Takes a tenth of a second, more on a bad day: never on the event loop."""
    private_key = rsa.generate_private_key(PUBLIC_EXPONENT, KEY_BITS)
    public = private_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    key_id = hashlib.sha256(public).hexdigest()[:KEY_ID_DIGITS]
    return SigningKey(key_id, signs_from_ns, _certificate(private_key, now_ns), private_key)


def _certificate(private_key: rsa.RSAPrivateKey, now_ns: int) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "holdfast")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.fromtimestamp(now_ns // NANOSECONDS, datetime.UTC))
        .not_valid_after(NO_END)
    )
    return builder.sign(private_key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _record(key: SigningKey) -> PutRecord:
    private = key.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    value = {"signs_from_ns": key.signs_from_ns, "certificate": key.certificate, "private_key": private}
    return PutRecord(KIND, key.id, json.dumps(value).encode())


def _decoded(name: str, stored: bytes) -> SigningKey:
    try:
        value = json.loads(stored)
        private_key = load_pem_private_key(value["private_key"].encode(), None)
        assert isinstance(private_key, rsa.RSAPrivateKey)
        assert isinstance(value["signs_from_ns"], int)
        x509.load_pem_x509_certificate(value["certificate"].encode())
        return SigningKey(name, value["signs_from_ns"], value["certificate"], private_key)
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError):
        # Without its cause, whose text may hold some of the key.
        raise CorruptData(f"the stored signing key {name} cannot be read: restore the data from a backup") from None


def _in_order(keys: Sequence[SigningKey]) -> list[SigningKey]:
    return sorted(keys, key=lambda key: key.signs_from_ns)
