"""All that a desk keeps, in one database: each part of it is a port of its own."""

from __future__ import annotations

from typing import Protocol

from holdfast.deadletter.audit import AuditLog
from holdfast.deadletter.failures import FailureStore
from holdfast.deadletter.groups import GroupStore
from holdfast.deadletter.held_places import PlaceStore
from holdfast.deadletter.replay.jobs import ReplayStore
from holdfast.deadletter.statistics import StatisticsStore


class DeskStore(FailureStore, GroupStore, ReplayStore, StatisticsStore, PlaceStore, AuditLog, Protocol):
    async def store_id(self) -> str:
        """A random name of this database, made once: what two desks send is never taken for the same."""
        ...

    async def secret(self) -> bytes:
        """32 random bytes, made once."""
        ...

    async def check(self) -> None:
        """Raises when it is not there, or keeps nothing. Cheap; changes nothing, and waits for no other work."""
        ...

    async def close(self) -> None: ...
