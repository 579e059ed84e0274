"""Tokens for push requests: good ones, and every kind that must be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "https://consumer.example/pubsub/push"
ISSUER = "http://127.0.0.1:8085"
EMAIL = "pusher@local.iam.gserviceaccount.com"
KEY_ID = "key-1"


@cache
def private_key(number: int) -> rsa.RSAPrivateKey:
    """The same for the same number, because making one takes long."""
    return rsa.generate_private_key(65537, 2048)


def jwk(number: int, key_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = RSAAlgorithm.to_jwk(private_key(number).public_key(), as_dict=True)
    return {"kid": key_id, "kty": "RSA", "alg": "RS256", "use": "sig", "n": fields["n"], "e": fields["e"]}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


class OneKey:
    """A key source that has one key, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def key(self, key_id: str) -> rsa.RSAPublicKey | None:
        self.asked += 1
        return private_key(1).public_key() if key_id == KEY_ID else None


def claims(now: float, **changed: Any) -> dict[str, Any]:
    """A claim that is changed to None is left out."""
    good = {
        "aud": AUDIENCE,
        "azp": "1",
        "email": EMAIL,
        "email_verified": True,
        "exp": int(now) + 3600,
        "iat": int(now),
        "iss": ISSUER,
        "sub": "1",
    }
    return {name: value for name, value in (good | changed).items() if value is not None}


def bearer(now: float, **changed: Any) -> str:
    return f"Bearer {_signed('RS256', claims(now, **changed))}"


def refused(now: float) -> dict[str, tuple[str, str]]:
    """By name: the header, and the part of it that must be named as wrong."""
    good = claims(now)
    token = jwt.encode(good, private_key(1), "RS256", {"kid": KEY_ID})
    head, body, signature = token.split(".")
    flipped = signature[:20] + ("A" if signature[20] != "A" else "B") + signature[21:]
    public = private_key(1).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    no_key_id = jwt.encode(good, private_key(1), "RS256")
    tokens = {
        "a forged signature": (f"{head}.{body}.{flipped}", "signature"),
        "other claims under a good signature": (f"{head}.{_part(claims(now, aud='other'))}.{signature}", "signature"),
        "another key under our key id": (jwt.encode(good, private_key(2), "RS256", {"kid": KEY_ID}), "signature"),
        "claims that are no object": (_signed("RS256", [1]), "signature"),
        "alg none": (jwt.encode(good, "", "none", {"kid": KEY_ID}), "Authorization"),
        "alg none with a signature": (f"{_part({'alg': 'none', 'kid': KEY_ID})}.{body}.{signature}", "alg"),
        "alg NoNe": (f"{_part({'alg': 'NoNe', 'kid': KEY_ID})}.{body}.{signature}", "alg"),
        "no alg": (f"{_part({'kid': KEY_ID})}.{body}.{signature}", "alg"),
        "HS256 with our PEM as secret": (_hs256(good, pem), "alg"),
        "HS256 with our PEM without its end as secret": (_hs256(good, pem.strip()), "alg"),
        "HS256 with our JWK as secret": (_hs256(good, json.dumps(jwk(1, KEY_ID)).encode()), "alg"),
        "RS512, well signed": (_signed("RS512", good), "alg"),
        "no key id": (no_key_id, "kid"),
        "an empty key id": (jwt.encode(good, private_key(1), "RS256", {"kid": ""}), "kid"),
        "a key id that is no text": (f"{_part({'alg': 'RS256', 'kid': [1]})}.{body}.{signature}", "Authorization"),
        "an unknown key id": (jwt.encode(good, private_key(1), "RS256", {"kid": "other"}), "kid"),
        "a header that is no object": (f"{_part([1])}.{body}.{signature}", "Authorization"),
        "a header nested too deep": (f"{_encoded(b'[' * 5000)}.{body}.{signature}", "Authorization"),
    }
    headers = {
        "nothing": ("", "Authorization"),
        "Basic": ("Basic dXNlcjpwYXNzd29yZA==", "Authorization"),
        "Basic with a good token": (f"Basic {token}", "Authorization"),
        "the scheme alone": ("Bearer", "Authorization"),
        "the token alone": (token, "Authorization"),
        "two spaces": (f"Bearer  {token}", "Authorization"),
        "two tokens": (f"Bearer {token} {token}", "Authorization"),
        "padding": (f"Bearer {token}=", "Authorization"),
        "garbage": ("Bearer garbage", "Authorization"),
        "garbage in three parts": ("Bearer a.b.c", "Authorization"),
        "bytes that are no ASCII": ("Bearer \xe9.\xff.\xfe", "Authorization"),
        "100 kB": ("Bearer " + "a" * 100_000, "Authorization"),
        "100 kB in three parts": (f"Bearer {head}.{'a' * 100_000}.{signature}", "Authorization"),
    }
    wrong_claims: dict[str, tuple[dict[str, Any], str]] = {
        "expired": ({"iat": int(now) - 3900, "exp": int(now) - 300}, "exp"),
        "without an end": ({"exp": None}, "exp"),
        "an end that is text": ({"exp": str(int(now) + 3600)}, "exp"),
        "an end beyond all": ({"exp": 10**400}, "exp"),
        "an end that is no number": ({"exp": float("nan")}, "exp"),
        "from the future": ({"iat": int(now) + 300}, "iat"),
        "without a beginning": ({"iat": None}, "iat"),
        "not yet valid": ({"nbf": int(now) + 300}, "nbf"),
        "another audience": ({"aud": f"{AUDIENCE}/"}, "aud"),
        "several audiences": ({"aud": [AUDIENCE, "https://other.example"]}, "aud"),
        "no audience": ({"aud": None}, "aud"),
        "another issuer": ({"iss": f"{ISSUER}0"}, "iss"),
        "Google as issuer": ({"iss": "https://accounts.google.com"}, "iss"),
        "issuers": ({"iss": [ISSUER]}, "iss"),
        "no issuer": ({"iss": None}, "iss"),
        "another account": ({"email": f"x{EMAIL}"}, "email"),
        "no account": ({"email": None}, "email"),
        "an account that is not verified": ({"email_verified": False}, "email_verified"),
        "an account of which nobody says that it is verified": ({"email_verified": None}, "email_verified"),
        "an account that is verified in words": ({"email_verified": "true"}, "email_verified"),
    }
    return (
        headers
        | {name: (f"Bearer {text}", what) for name, (text, what) in tokens.items()}
        | {name: (bearer(now, **changed), what) for name, (changed, what) in wrong_claims.items()}
    )


def _encoded(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _part(value: Any) -> str:
    return _encoded(json.dumps(value).encode())


def _signed(algorithm: str, value: Any) -> str:
    """Not by jwt.encode, which does not sign everything that must be tried."""
    payload = json.dumps(value).encode()
    return jwt.PyJWS().encode(payload, private_key(1), algorithm, {"kid": KEY_ID, "typ": "JWT"})


def _hs256(value: Any, secret: bytes) -> str:
    """By hand: PyJWT refuses to sign with a public key as secret."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': KEY_ID})}.{_part(value)}"
    return f"{signed}.{_encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


# For tests that go through them one by one.
REFUSED = sorted(refused(0))
