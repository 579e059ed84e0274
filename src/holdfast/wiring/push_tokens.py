"""Which tokens our own subscriptions carry, and which ones the consumer takes."""

from __future__ import annotations

from contextlib import AsyncExitStack

from holdfast.api.http import openid
from holdfast.clock import Clock
from holdfast.consumer.push_auth import GOOGLE, GOOGLE_KEYS_URL, PushAuth, RemoteKeys
from holdfast.errors import BadInput, SettingError
from holdfast.model.resources import OidcToken
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.outgoing.fetch import fetch
from holdfast.outgoing.targets import parse_target
from holdfast.settings import Settings
from holdfast.wiring.broker import BrokerPart
from holdfast.wiring.lifetimes import entered

# A key set has a few keys of half a kilobyte.
MOST_KEYS_BYTES = 1_000_000


def push_token(settings: Settings) -> OidcToken:
    """What the default topology's subscriptions send to the consumer."""
    account = settings.consumer_auth.email or f"holdfast-push@{settings.general.project}.iam.gserviceaccount.com"
    return OidcToken(account, settings.consumer_auth.audience)


def local_auth(part: BrokerPart, clock: Clock, token: OidcToken, endpoint: str) -> PushAuth:
    keys = openid.LocalKeys(part.broker.signing_keys)
    return PushAuth(keys, clock, audience=token.audience or endpoint, issuer=part.issuer, email=token.service_account)


async def remote_auth(stack: AsyncExitStack, settings: Settings, clock: Clock) -> PushAuth | None:
    wanted = settings.consumer_auth
    if wanted.push == "off" or (wanted.push == "auto" and not wanted.audience):
        return None
    if not wanted.audience:
        raise SettingError("consumer.auth.audience", "", "must be set where consumer.auth.push is required")
    url = wanted.keys_url or GOOGLE_KEYS_URL
    try:
        target = parse_target("consumer.auth.keys_url", url)
    except BadInput as error:
        raise SettingError("consumer.auth.keys_url", url, "must be an http:// or https:// URL") from error
    # Not somebody's address but the operator's own, so it may be on this machine wherever we listen.
    guard = AddressGuard.from_setting(settings.outgoing.allow, listens_on_loopback=True)
    client = await entered(stack, OutgoingClient(guard, ca_file=settings.push.ca_file))
    keys = RemoteKeys(lambda: fetch(client, target, MOST_KEYS_BYTES), clock)
    return PushAuth(keys, clock, audience=wanted.audience, issuer=wanted.issuer or GOOGLE, email=wanted.email)
