"""Which push requests the consumer takes."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import one_of
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class ConsumerAuthSettings:
    push: str = setting(
        "auto",
        "Whether push requests must carry a valid token: `required`, `off`, or `auto`: required in `up`, and in "
        "`consume` when `audience` is set.",
        check=one_of("auto", "required", "off"),
    )
    audience: str = setting("", "Audience that a token must name. Empty in `up`: the URL of its own push endpoint.")
    issuer: str = setting(
        "", "Issuer that a token must name. Empty: `https://accounts.google.com`; in `up`, its own broker."
    )
    keys_url: str = setting(
        "", "Where the issuer's keys (a JWKS) are. Empty: Google's; in `up`, its own broker's without a request."
    )
    email: str = setting(
        "",
        "Service account that a token must name. Empty: any in `consume`; in `up`, the one of its own subscriptions.",
    )
