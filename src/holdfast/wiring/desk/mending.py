"""What changes failed messages by hand: edits, patches, holds, erasure, export and import."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.api.http import bulk, edits, exchange
from holdfast.api.http.describing import ApiRoute
from holdfast.clock import Clock
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.edits.bulk import BulkEditing
from holdfast.deadletter.edits.checks import ContentCheck
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.exchange.service import Exchange
from holdfast.deadletter.keeping import Keeping
from holdfast.deadletter.redaction import redaction_from
from holdfast.deadletter.sight import Sight
from holdfast.deadletter.store import DeskStore
from holdfast.settings import Settings


def sight_of(store: DeskStore, clock: Clock, settings: Settings) -> Sight:
    return Sight(redaction_from(settings.desk), settings.desk.reveal_token, store, clock)


def mending_routes(
    store: DeskStore, clock: Clock, settings: Settings, checks: Sequence[ContentCheck] = ()
) -> list[ApiRoute]:
    browsing, sight = Browsing(store, clock, settings.general.project), sight_of(store, clock, settings)
    editing = Editing(store, clock, checks)
    return [
        *edits.routes(editing, sight),
        *bulk.routes(browsing, BulkEditing(store, clock, editing), Keeping(store, clock), sight),
        *exchange.routes(browsing, Exchange(store, clock), sight),
    ]
