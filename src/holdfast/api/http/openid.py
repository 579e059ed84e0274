"""The broker's public keys, where OpenID Connect and Google's libraries look for them."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import with_errors
from holdfast.broker.signing_keys import CACHE_SECONDS, SigningKeys, certificates, key_set
from holdfast.consumer.push_auth import KeysUnavailable
from holdfast.errors import StorageUnavailable

CONFIGURATION_PATH = "/.well-known/openid-configuration"

# Google's own paths: as JWKS and as certificates.
KEY_SET_PATH = "/oauth2/v3/certs"
CERTIFICATES_PATH = "/oauth2/v1/certs"

_CACHE = {"Cache-Control": f"public, max-age={CACHE_SECONDS}"}


def routes(keys: SigningKeys, issuer: Callable[[], str]) -> list[Route]:
    """`issuer` is asked at each request: the broker's own URL has a port that is known only once it listens."""

    async def configuration(request: Request) -> Response:
        base = issuer()
        body = {
            "issuer": base,
            "jwks_uri": base.rstrip("/") + KEY_SET_PATH,
            "id_token_signing_alg_values_supported": ["RS256"],
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "claims_supported": ["aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub"],
        }
        return JSONResponse(body, headers=_CACHE)

    async def jwks(request: Request) -> Response:
        return JSONResponse(key_set(await keys.published()), headers=_CACHE)

    async def pem(request: Request) -> Response:
        return JSONResponse(certificates(await keys.published()), headers=_CACHE)

    return [
        Route(CONFIGURATION_PATH, with_errors(configuration)),
        Route(KEY_SET_PATH, with_errors(jwks)),
        Route(CERTIFICATES_PATH, with_errors(pem)),
    ]


class LocalKeys:
    """The broker's keys for a consumer in the same process: holdfast.consumer.push_auth.KeySource without a request."""

    def __init__(self, keys: SigningKeys) -> None:
        self._keys = keys

    async def key(self, key_id: str) -> RSAPublicKey | None:
        try:
            published = await self._keys.published()
        except StorageUnavailable as error:
            raise KeysUnavailable(f"the broker's keys cannot be read: {error}") from error
        return next((key.public_key for key in published if key.id == key_id), None)
