"""The routes that change failed messages by hand, on a real server: what tests of them share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from holdfast.deadletter.edits.checks import ContentCheck
from holdfast.deadletter.store import DeskStore
from holdfast.settings import load_settings
from holdfast.wiring.desk.mending import mending_routes
from holdfast.wiring.desk.serving import looking_routes
from tests.support.desk import Api, a_clock, a_failure, served


def serving(store: DeskStore, checks: Sequence[ContentCheck] = (), **flags: object) -> AbstractAsyncContextManager[Api]:
    """Flags are named as settings of the desk."""
    settings = load_settings({f"desk.{name}": value for name, value in flags.items()}, environ={})
    clock = a_clock()
    return served([*looking_routes(store, clock, settings), *mending_routes(store, clock, settings, checks)])


async def recorded(store: DeskStore, *message_ids: str, **changes: Any) -> list[int]:
    rows = await store.record([a_failure(message_id, **changes) for message_id in message_ids or ("m-1",)])
    return [row.id for row in rows]


async def actions(api: Api, name: str) -> list[dict[str, Any]]:
    """Of the audit trail, newest first."""
    found: list[dict[str, Any]] = (await api.ok("/audit", ("action", name)))["entries"]
    return found
