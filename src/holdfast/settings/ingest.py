"""How events get in over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import between
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class IngestSettings:
    per_second: float = setting(
        0.0,
        "Events that `POST /api/v1/ingest/TOPIC` takes in a second; what is more is refused with 429. 0: no bound.",
        check=between(0, 100_000),
    )
    check_routes: bool = setting(
        True,
        "In `holdfast up`, what the topic's handler would dead-letter is refused before it is published.",
    )
