"""What the desk tells of a message's journey: its rows, who did what to them, and what they were sent again as."""

from __future__ import annotations

from dataclasses import replace

from holdfast.deadletter.audit import Action
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.journey import DeskJourney
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.deadletter.replay.jobs import ItemState, Job, Options
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import Content, FailureStatus, Revision
from holdfast.model.journey import Did, Event, Told
from tests.support.desk import a_failure, store
from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres", "store"]

SECOND = 1_000_000_000


async def told(store: DeskStore, message_id: str, redaction: Redaction = NOTHING_HIDDEN) -> Told:
    return await DeskJourney(store, redaction).tell([message_id])


def lines(events: Told) -> list[tuple[str, str, str, str]]:
    return [(event.did, event.where, event.related, event.detail) for event in events.events]


def one(found: Told, did: Did) -> Event:
    (event,) = [event for event in found.events if event.did is did]
    return event


async def test_a_message_that_never_failed_is_not_known(store: DeskStore) -> None:
    await store.record([a_failure("m-1")])
    for unknown in ("m-2", "", "\0", "x" * 5000):
        assert lines(await told(store, unknown)) == []


async def test_a_row_its_edits_and_what_people_did(store: DeskStore) -> None:
    await store.record([a_failure("m-1", created_at_ns=9 * SECOND, error_details="no", publish_time_ns=SECOND)])
    row = await store.get(1)
    assert row is not None
    revision = Revision(1, 1, Content(b"{}"), "ada", created_at_ns=10 * SECOND)
    await store.revise([Edit(row.revise(), revision, Action("ada", "failure.edit", "failures/1", {}, 10 * SECOND))])
    await store.append(Action("bob", "failure.reveal", "failures/1", {}, 11 * SECOND))
    await store.append(Action("bob", "failure.reveal", "failures/11", {}, 11 * SECOND))
    found = await told(store, "m-1")
    assert [(event.did, event.at_ns) for event in found.events] == [
        (Did.PUBLISHED, SECOND),
        (Did.RECORDED, 9 * SECOND),
        (Did.EDITED, 10 * SECOND),
        (Did.ACTED_ON, 11 * SECOND),
        (Did.IS, None),
    ]
    assert one(found, Did.EDITED).detail == "revision 1 by ada"
    assert one(found, Did.ACTED_ON).detail == "failure.reveal by bob"
    assert one(found, Did.IS).detail == "permanent_failure"
    assert list(found.ids) == ["m-1"]


async def test_errors_do_not_quote_what_is_hidden(store: DeskStore) -> None:
    failure = a_failure("m-1", data=b'{"card": "4111-1111"}', error_details="card 4111-1111 is refused")
    await store.record([failure])
    job = await store.create_job(Job(Selection(), Options(), "ada"), Action("ada", "replay.create", "replays"))
    ((item, _),) = await store.pending(job.id, 1)
    skipped = replace(item, state=ItemState.SKIPPED, note="4111-1111 again")
    await store.save_items([skipped])
    hidden = await told(store, "m-1", Redaction(["payload:card"]))
    assert "4111" not in str(hidden)
    assert one(hidden, Did.RECORDED).detail.endswith("card [redacted] is refused")
    assert (Did.IS, "replays/1", "", "skipped: [redacted] again") in lines(hidden)
    assert "4111-1111" in one(await told(store, "m-1"), Did.RECORDED).detail


async def test_a_retry_that_is_out_leads_to_its_row_and_back(store: DeskStore) -> None:
    queued = a_failure("m-1", status=FailureStatus.QUEUED_FOR_RETRY, retry_at_ns=9 * SECOND)
    await store.record([queued])
    row = await store.get(1)
    assert row is not None
    assert one(await told(store, "m-1"), Did.IS).detail.startswith("queued_for_retry; the next at 1970-01-01T00:00:09Z")
    await store.save([row.mark_sent(10 * SECOND, "r-1")])
    for message_id in ("m-1", "r-1"):
        found = await told(store, message_id)
        sent = one(found, Did.SENT_AGAIN)
        assert (sent.at_ns, sent.related, sent.detail) == (10 * SECOND, "r-1", "automatic retry 1")
        assert list(found.ids) == ["m-1", "r-1"]
        assert one(found, Did.IS).detail == "queued_for_retry after 1 automatic retries; one is out"
    row = await store.get(1)
    assert row is not None
    await store.save([row.mark_retry_success(12 * SECOND)])
    assert one(await told(store, "r-1"), Did.SUCCEEDED).at_ns == 12 * SECOND


async def test_a_replay_and_what_it_met_with_are_one_family(store: DeskStore) -> None:
    await store.record([a_failure("m-1", publish_time_ns=SECOND)])
    job = await store.create_job(Job(Selection(), Options(), "ada"), Action("ada", "replay.create", "replays"))
    ((item, _),) = await store.pending(job.id, 1)
    sent = replace(item, state=ItemState.FAILED, message_id="r-1", sent_at_ns=5 * SECOND, note="it failed again")
    row = await store.get(1)
    assert row is not None
    await store.save_items([sent], [row.mark_replayed(6 * SECOND, job.id, "r-1")])
    await store.record([a_failure("r-1", origin_id=1, generation=1, publish_time_ns=SECOND)])
    for message_id in ("m-1", "r-1"):
        found = await told(store, message_id)
        replayed = one(found, Did.SENT_AGAIN)
        assert (replayed.where, replayed.related, replayed.at_ns) == ("replays/1", "r-1", 5 * SECOND)
        assert replayed.detail == "replay failed: it failed again"
        assert [event.where for event in found.events if event.did is Did.RECORDED] == ["failures/1", "failures/2"]
        assert [event.message_id for event in found.events if event.did is Did.PUBLISHED] == ["m-1"]
        assert list(found.ids) == ["m-1", "r-1"]
