"""Where requests may go to."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import allowed_networks
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class OutgoingSettings:
    allow: str = setting(
        "auto",
        "Addresses beyond the public Internet that Holdfast may send requests to: `none`, `loopback`, `private` (which "
        "includes loopback), or networks such as `10.1.0.0/16, fd00::/8`. `auto` means loopback while the broker "
        "listens on loopback only, else none.",
        check=allowed_networks,
    )
