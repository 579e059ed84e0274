"""How events get in over HTTP: validated and published, or into the desk's hands."""

from __future__ import annotations

from holdfast.api.http import ingest
from holdfast.api.http.describing import ApiRoute
from holdfast.clock import Clock
from holdfast.consumer.app import Consumer
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.ingest_desk import IngestDesk
from holdfast.deadletter.manual_replay import ManualReplay
from holdfast.deadletter.redaction import redaction_from
from holdfast.deadletter.rehearsing import RouteRules
from holdfast.ingest.events import Ingest
from holdfast.ingest.identity import EVENT_ID, digest_key, own_key
from holdfast.ingest.manual import ManualIngest, Schemas
from holdfast.ingest.pace import IngestPace
from holdfast.ingest.validation import Validation
from holdfast.settings import Settings
from holdfast.topology.default import topics_by_subscription
from holdfast.wiring.desk.mending import sight_of
from holdfast.wiring.desk.work import DeskPart


def validation_of(settings: Settings, clock: Clock, schemas: Schemas, app: Consumer | None = None) -> Validation:
    """`app` is the consumer of this process, where there is one."""
    if app is None or not settings.ingest.check_routes:
        return Validation(schemas)
    return Validation(schemas, RouteRules(Rehearsal(app, settings.consumer, topics_by_subscription(settings)), clock))


def ingest_routes(desk: DeskPart, clock: Clock, settings: Settings, schemas: Schemas) -> list[ApiRoute]:
    project = settings.general.project
    replay = ManualReplay(
        desk.store,
        clock,
        Editing(desk.store, clock),
        desk.sending,
        desk.outlet,
        sight_of(desk.store, clock, settings),
        settings.desk.max_generation,
    )
    refusals = IngestDesk(desk.intake, desk.store, clock)
    hides_event_ids = bool(redaction_from(settings.desk).hidden_paths({"json": {EVENT_ID: ""}}))
    return ingest.routes(
        ManualIngest(desk.transport, schemas, replay, project),
        Ingest(desk.transport, desk.validation, refusals, project, digest_key if hides_event_ids else own_key),
        IngestPace(settings.ingest.per_second, clock),
    )
