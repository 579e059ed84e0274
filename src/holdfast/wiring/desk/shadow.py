"""A consumer of the user's own beside the desk's store, for looking only."""

from __future__ import annotations

from holdfast.clock import SystemClock
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.redaction import redaction_from
from holdfast.deadletter.replay.shadow import ShadowReport, foresee
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.sending import content_of
from holdfast.settings import Settings
from holdfast.topology.default import topics_by_subscription
from holdfast.wiring.consumer import load_app, make_consumer
from holdfast.wiring.stores import read_failures

PAGE = 500


async def shadow_report(settings: Settings, app: str, selection: Selection, limit: int) -> ShadowReport:
    """`app` is MODULE:NAME. Nothing is written and no broker is asked."""
    consumer = make_consumer(settings, SystemClock(), load_app(app))
    rehearsal = Rehearsal(consumer, settings.consumer, topics_by_subscription(settings))
    redaction = redaction_from(settings.desk)
    report, after = ShadowReport(), 0
    store = await read_failures(settings)
    try:
        while limit > 0 and (page := await store.walk(selection, after, min(PAGE, limit))):
            after, limit = page[-1].id, limit - len(page)
            for failure in page:
                content = await content_of(store, failure, failure.revision)
                report.add(failure.id, await foresee(rehearsal, failure, content, redaction))
    finally:
        await store.close()
    return report
