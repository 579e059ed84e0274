"""Random operations on a broker over SQLite, compared after each with a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.broker.leases import Lease
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.wire import encode
from holdfast.errors import StaleAckIds
from holdfast.model.message import Message
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.model.resources import RetryPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import TOPIC, settle_down, take, text

T = TypeVar("T")

NAMES = ("plain", "ordered", "once")
SNAPSHOT = "projects/local/snapshots/model"


def path_of(name: str) -> str:
    return f"projects/local/subscriptions/{name}"


@dataclass
class Model:
    """What one subscription should know: which messages are open, and how often each was tried."""

    open: dict[str, int] = field(default_factory=dict)  # message -> failed attempts, in publish order
    leased: dict[str, Lease] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def forget_leases(self) -> None:
        self.leased.clear()


class BrokerMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.names: list[str] = []  # of every message, in publish order
        self.addressed: dict[str, str] = {}  # of some, the one subscription that they are for
        self.models = {name: Model() for name in NAMES}
        self.snapshot: list[str] | None = None
        self.published_at_snapshot = 0
        self.run(self._open())
        self.run(self._create())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def _open(self) -> None:
        self.log = await SqliteMessageLog.open(Path(self.folder.name, "broker.db"))
        self.broker = await Broker.open(self.log, self.clock, BrokerSettings())

    async def _create(self) -> None:
        # Acked messages are kept, so that seeking back has something to find.
        await self.broker.create_topic(Topic(TOPIC, message_retention_seconds=31 * 24 * 3600))
        once = RetryPolicy(0, 0)
        for name in NAMES:
            await self.broker.create_subscription(
                Subscription(path_of(name), TOPIC, ordered=name == "ordered", exactly_once=name == "once", retry=once)
            )

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self._close())
            self.loop.close()
            self.folder.cleanup()

    async def _close(self) -> None:
        await self.broker.close()
        await self.log.close()

    @rule(keys=st.lists(st.sampled_from(["", "k", "l"]), min_size=1, max_size=4))
    def publish(self, keys: list[str]) -> None:
        for key in keys:
            name = f"{key}{len(self.names) + 1}"
            self.names.append(name)
            self.run(self.broker.publish_message(TOPIC, Message(name.encode(), ordering_key=key)))
            for model in self.models.values():
                model.open[name] = 0

    @rule(name=st.sampled_from(NAMES), keys=st.lists(st.sampled_from(["", "k", "l"]), min_size=1, max_size=4))
    def publish_to(self, name: str, keys: list[str]) -> None:
        for key in keys:
            message = f"{key}{len(self.names) + 1}"
            self.names.append(message)
            self.addressed[message] = name
            encoded = encode(Message(message.encode(), {REPLAY_ID: message}, key))
            first = self.run(self.broker.publish_to(path_of(name), [encoded], len(encoded)))
            assert self.run(self.broker.publish_to(path_of(name), [encoded], len(encoded))) == first
            self.models[name].open[message] = 0

    def is_for(self, message: str, name: str) -> bool:
        return self.addressed.get(message, name) == name

    @rule(name=st.sampled_from(NAMES), most=st.integers(1, 5))
    def take(self, name: str, most: int) -> None:
        model = self.models[name]
        leases = self.run(self._taken(name, most))
        for lease in leases:
            message = text(lease)
            assert message in model.open, "delivered although settled"
            assert message not in model.leased, "delivered twice at once"
            assert lease.attempt == model.open[message] + 1
            if name == "ordered" and message[0].isalpha():
                first = next(item for item in model.open if item[0] == message[0])
                assert message == first, "a later message of its key came first"
            model.leased[message] = lease

    async def _taken(self, name: str, most: int) -> list[Lease]:
        await settle_down()
        return await take(self.broker.queue(path_of(name)), most, 10)

    @precondition(lambda self: any(model.leased for model in self.models.values()))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        name, message, lease = self._pick(data)
        self.run(self.broker.acknowledge(path_of(name), [lease.ack_id]))
        self._settled(name, message)
        if name == "once":
            with pytest.raises(StaleAckIds):
                self.run(self.broker.acknowledge(path_of(name), [lease.ack_id]))
        else:
            self.run(self.broker.acknowledge(path_of(name), [lease.ack_id]))

    @precondition(lambda self: any(model.leased for model in self.models.values()))
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        name, message, lease = self._pick(data)
        self.run(self._nack(name, lease))
        self.models[name].open[message] += 1
        del self.models[name].leased[message]

    async def _nack(self, name: str, lease: Lease) -> None:
        self.broker.modify_ack_deadline(path_of(name), [lease.ack_id], 0)
        await settle_down()

    @rule()
    def all_leases_run_out(self) -> None:
        self.run(self._advance(11))
        for model in self.models.values():
            for message in model.leased:
                model.open[message] += 1
            model.forget_leases()

    async def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle_down()

    @rule()
    def restart(self) -> None:
        """What was under way is delivered again; an attempt that had not failed yet is not counted."""
        self.run(self._close())
        self.run(self._open())
        for model in self.models.values():
            model.forget_leases()

    @rule()
    def clean_up(self) -> None:
        self.run(remove_once(self.broker))

    @rule()
    def take_snapshot(self) -> None:
        if self.snapshot is not None:
            self.run(self.broker.delete_snapshot(SNAPSHOT))
        self.run(self.broker.create_snapshot(SNAPSHOT, path_of("plain"), {}))
        self.snapshot = list(self.models["plain"].open)
        self.published_at_snapshot = len(self.names)

    @precondition(lambda self: self.snapshot is not None)
    @rule(name=st.sampled_from(NAMES))
    def seek_to_snapshot(self, name: str) -> None:
        self.run(self.broker.seek_to_snapshot(path_of(name), SNAPSHOT))
        assert self.snapshot is not None
        before = [message for message in self.snapshot if message not in self.addressed or name == "plain"]
        if name != "plain":  # whose own messages are gaps to the one that the snapshot is of: settled once it saw them
            settled = self.broker.queue(path_of(name)).settled
            before = [
                message
                for sequence, message in enumerate(self.names[: self.published_at_snapshot], 1)
                if message in before or (self.addressed.get(message) == name and sequence not in settled)
            ]
        self._reopen(name, [*before, *self.names[self.published_at_snapshot :]])

    @rule(name=st.sampled_from(NAMES))
    def seek_to_the_beginning(self, name: str) -> None:
        self.run(self.broker.seek_to_time(path_of(name), 0))
        self._reopen(name, self.names)

    @rule(name=st.sampled_from(NAMES))
    def seek_to_now(self, name: str) -> None:
        self.run(self.broker.seek_to_time(path_of(name), self.clock.now_ns() + 1))
        self._reopen(name, [])

    @invariant()
    def exactly_the_open_messages_are_unsettled(self) -> None:
        if not hasattr(self, "models"):
            return
        for name, model in self.models.items():
            settled = self.broker.queue(path_of(name)).settled
            unsettled = [
                message
                for sequence, message in enumerate(self.names, 1)
                if sequence not in settled and self.is_for(message, name)
            ]
            assert unsettled == list(model.open)

    def _reopen(self, name: str, messages: list[str]) -> None:
        self.models[name] = Model(open={message: 0 for message in messages if self.is_for(message, name)})

    def _pick(self, data: st.DataObject) -> tuple[str, str, Lease]:
        held = [(name, message) for name in NAMES for message in self.models[name].leased]
        name, message = data.draw(st.sampled_from(held))
        return name, message, self.models[name].leased[message]

    def _settled(self, name: str, message: str) -> None:
        del self.models[name].open[message]
        del self.models[name].leased[message]


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,  # a loaded machine is slow, not wrong
    suppress_health_check=[HealthCheck.too_slow],
)
