"""The tokens that push requests carry: who sends, for whom, signed with the broker's key, in the form of Google's."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

import jwt

from holdfast.broker.signing_keys import TOKEN_SECONDS, SigningKey, SigningKeys
from holdfast.clock import NANOSECONDS, Clock
from holdfast.model.resources import OidcToken

# A token is replaced while it still has so long to go: no request that is on its way, however slowly, carries one that
# ends meanwhile.
RENEW_BEFORE_SECONDS = 1800

# Of different accounts or audiences, at about 2 KB each. The longest unused one makes room.
MOST_TOKENS = 10_000


class _Made(NamedTuple):
    authorization: str
    key_id: str
    good_until_ns: int


class PushTokens:
    def __init__(self, keys: SigningKeys, issuer: str, clock: Clock) -> None:
        self._keys = keys
        self._issuer = issuer
        self._clock = clock
        self._made: OrderedDict[tuple[str, str], _Made] = OrderedDict()

    async def authorization(self, oidc: OidcToken, endpoint: str) -> str:
        """The value of a request's Authorization header. Raises StorageUnavailable while there can be no key."""
        key = await self._keys.current()
        wanted = (oidc.service_account, oidc.audience or endpoint)
        now_ns = self._clock.now_ns()
        made = self._made.get(wanted)
        if made is None or now_ns >= made.good_until_ns or made.key_id != key.id:
            made = self._make(key, *wanted, now_ns)
            self._made[wanted] = made
        self._made.move_to_end(wanted)
        if len(self._made) > MOST_TOKENS:
            self._made.popitem(last=False)
        return made.authorization

    def _make(self, key: SigningKey, email: str, audience: str, now_ns: int) -> _Made:
        issued = now_ns // NANOSECONDS
        subject = subject_of(email)
        claims = {
            "aud": audience,
            "azp": subject,
            "email": email,
            "email_verified": True,
            "exp": issued + TOKEN_SECONDS,
            "iat": issued,
            "iss": self._issuer,
            "sub": subject,
        }
        token = jwt.encode(claims, key.private_key, "RS256", headers={"kid": key.id})
        good_until_ns = (issued + TOKEN_SECONDS - RENEW_BEFORE_SECONDS) * NANOSECONDS
        return _Made(f"Bearer {token}", key.id, good_until_ns)


def subject_of(email: str) -> str:
    """A number of 21 digits, as Google's accounts have; the same for the same e-mail, always."""
    return f"1{int(hashlib.sha256(email.encode()).hexdigest(), 16) % 10**20:020}"
