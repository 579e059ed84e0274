"""A person and the automatic retries at the same failure in the same moment: it is sent once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from holdfast.broker.service import Broker
from holdfast.deadletter.edits.changes import Merge
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.manual_replay import ManualReplay
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.deadletter.replay.claiming import Claiming
from holdfast.deadletter.replay.jobs import Item, Options
from holdfast.deadletter.replay.screening import OUT_ON_RETRY, Screening
from holdfast.deadletter.sight import Sight
from holdfast.errors import FailedPrecondition
from holdfast.ingest.manual import Person
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Message
from holdfast.transports.local import LocalTransport
from tests.support.desk_parts import ORDERS, TOPIC, Consumer, Parts, memory_broker, memory_desk

AS_IT_WAS, CORRECTED = b'{"a": 1}', b'{"a": 2}'


class Slow(LocalTransport):
    """What the retries send is on its way until `go` is set."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.is_on_its_way = asyncio.Event()
        self.go = asyncio.Event()

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        self.is_on_its_way.set()
        await self.go.wait()
        return await super().publish_to(subscription, messages)


@dataclass
class Racing:
    """A retry of failure `row` is on its way to the broker."""

    desk: Parts
    broker: Broker
    slow: Slow
    row: int
    turn: asyncio.Task[int]

    @property
    def editing(self) -> Editing:
        return Editing(self.desk.store, self.desk.clock)

    async def replay_by_hand(self, payload: bytes) -> str:
        store, clock = self.desk.store, self.desk.clock
        sight = Sight(Redaction(), "", store, clock)
        outlet = LocalTransport(self.broker)
        manual = ManualReplay(store, clock, self.editing, self.desk.sending, outlet, sight, most_generations=5)
        return await manual.replay(self.row, TOPIC, payload, Person("me"))

    async def came(self) -> list[bytes]:
        self.slow.go.set()
        await self.turn
        return [message.data for message in await Consumer(self.broker).ack()]


@pytest.fixture
async def racing() -> AsyncIterator[Racing]:
    async with memory_desk() as desk, memory_broker(desk.clock) as broker:
        slow = Slow(broker)
        failure = FailedMessage("1", ORDERS, TOPIC, "DATABASE_CONNECTION_ERROR", "away", AS_IT_WAS)
        (row,) = await desk.intake().record_new([failure])
        desk.clock.advance(5)
        turn = asyncio.create_task(desk.scheduler(slow).turn())
        await slow.is_on_its_way.wait()
        yield Racing(desk, broker, slow, row.id, turn)


@pytest.mark.parametrize("payload", [AS_IT_WAS, CORRECTED])
async def test_a_replay_by_hand_waits_for_the_retry(racing: Racing, payload: bytes) -> None:
    with pytest.raises(FailedPrecondition, match="a retry of failed message 1 is being sent"):
        await racing.replay_by_hand(payload)
    assert await racing.came() == [AS_IT_WAS]
    assert not racing.desk.sending.retrying


async def test_a_replay_job_leaves_out_what_is_edited_while_its_retry_is_sent(racing: Racing) -> None:
    await racing.editing.edit(racing.row, Merge({"json": {"a": 2}}), NOTHING_HIDDEN, actor="me")
    screening = Screening(Options(), most_generations=5, job_id=7)
    store, clock = racing.desk.store, racing.desk.clock
    claiming = Claiming(store, clock, screening, set(), racing.desk.sending.retrying)
    claims = await claiming.claim([(Item(7, 1, racing.row), await store.get(racing.row))])
    assert [item.note for item, _ in claims.skipped] == [OUT_ON_RETRY]
    assert await racing.came() == [AS_IT_WAS]
    row = await store.get(racing.row)
    assert row
    assert row.is_out


async def test_once_it_is_over_a_person_may(racing: Racing) -> None:
    await racing.came()
    with pytest.raises(FailedPrecondition, match="is out already"):
        await racing.replay_by_hand(CORRECTED)
