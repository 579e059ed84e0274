"""What all processes have in common."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings import Settings


@dataclass(frozen=True, slots=True)
class Running:
    """Where the parts of this process listen. A port is 0 where that part does not run."""

    broker_port: int = 0
    http_port: int = 0


def may_create(settings: Settings) -> bool:
    """Nobody's cloud project gets resources without having been asked."""
    create = settings.topology.create
    return create == "always" or (create == "auto" and bool(settings.general.emulator_host))
