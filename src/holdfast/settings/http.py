"""The HTTP server of consumer and desk."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import PORT
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = setting("127.0.0.1", "Address of the HTTP server. Loopback: there is no login yet.")
    port: int = setting(8080, "Port of the push endpoint and the API. 0 takes a free one.", check=PORT, variable="PORT")
