"""Holdfast with a bug planted, each a function that the lab's child calls before it starts a part. A checker that does
not find them proves nothing.

Imported only by the processes of test_planted_bugs.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from holdfast.broker.leases import Failure, Lease
from holdfast.broker.log import Append, Change, FailedAttempts, Settle
from holdfast.broker.ordering import OrderingKeys
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.consumer.coalescer import Coalescer
from holdfast.consumer.documents import Result, Write
from holdfast.model.message import Message
from holdfast.model.outcome import Applied, Duplicate
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.stores.sqlite import database
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.transports.google_outlet import GoogleOutlet

# Between two steps that should have been one, so that a kill falls into it.
GAP_SECONDS = 0.4

_log_commit = SqliteMessageLog.commit
_store_apply = SqliteDocumentStore.apply
_coalescer_apply = Coalescer.apply
_try_again_later = SubscriptionQueue._try_again_later
_publish_to = GoogleOutlet.publish_to
_connect = database._connect
_under_way: set[asyncio.Task[None]] = set()


def _later(work: asyncio.Task[None]) -> None:
    _under_way.add(work)
    work.add_done_callback(_under_way.discard)


def publish_answered_before_commit() -> None:
    """The id is returned, and a moment later the message is on disk."""

    async def commit(self: SqliteMessageLog, changes: Sequence[Change]) -> None:
        if any(isinstance(change, Append) for change in changes):
            _later(asyncio.create_task(_commit_later(self, changes)))
        else:
            await _log_commit(self, changes)

    SqliteMessageLog.commit = commit  # type: ignore[method-assign]


async def _commit_later(log: SqliteMessageLog, changes: Sequence[Change]) -> None:
    await asyncio.sleep(GAP_SECONDS)
    await _log_commit(log, changes)


def acked_before_commit() -> None:
    """The consumer acks, and a moment later its documents are on disk."""

    async def apply(self: Coalescer, write: Write, size: int) -> Result:
        _later(asyncio.create_task(_apply_later(self, write, size)))
        return Applied(())

    Coalescer.apply = apply  # type: ignore[method-assign]


async def _apply_later(coalescer: Coalescer, write: Write, size: int) -> None:
    await asyncio.sleep(GAP_SECONDS)
    await _coalescer_apply(coalescer, write, size)


def marked_before_success() -> None:
    """The dedupe mark in a transaction of its own: a crash in between, and the event is lost as a duplicate."""

    async def apply(self: SqliteDocumentStore, writes: Sequence[Write]) -> Sequence[Result]:
        claimed = await _store_apply(self, [dataclasses.replace(write, changes=()) for write in writes])
        await asyncio.sleep(GAP_SECONDS)
        new = [write for write, result in zip(writes, claimed, strict=True) if not isinstance(result, Duplicate)]
        done = iter(await _store_apply(self, [dataclasses.replace(write, marks=()) for write in new]))
        return [result if isinstance(result, Duplicate) else next(done) for result in claimed]

    SqliteDocumentStore.apply = apply  # type: ignore[method-assign]


def not_deduplicated() -> None:
    """What comes again counts again."""

    async def apply(self: SqliteDocumentStore, writes: Sequence[Write]) -> Sequence[Result]:
        return await _store_apply(self, [dataclasses.replace(write, marks=()) for write in writes])

    SqliteDocumentStore.apply = apply  # type: ignore[method-assign]


def retry_lost() -> None:
    """Every fifth message that fails is taken for settled."""
    failures = iter(range(10**9))

    def try_again_later(self: SubscriptionQueue, lease: Lease, failure: Failure) -> None:
        if next(failures) % 5 == 0:
            self._settle([lease.sequence])
            self._save_later()
        else:
            _try_again_later(self, lease, failure)

    SubscriptionQueue._try_again_later = try_again_later  # type: ignore[method-assign]


def attempts_reset() -> None:
    """They are kept in memory alone: after a crash it is the first attempt again."""

    async def commit(self: SqliteMessageLog, changes: Sequence[Change]) -> None:
        await _log_commit(self, [_without_attempts(change) for change in changes])

    SqliteMessageLog.commit = commit  # type: ignore[method-assign]


def _without_attempts(change: Change) -> Change:
    if not isinstance(change, Settle):
        return change
    failed = {sequence: FailedAttempts(0, failed.due_ns) for sequence, failed in change.failed_set.items()}
    return dataclasses.replace(change, failed_set=failed)


def replayed_twice() -> None:
    """The desk sends again what it has sent already, and the broker cannot tell."""

    async def publish_to(self: GoogleOutlet, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        again = [
            dataclasses.replace(one, attributes={**one.attributes, REPLAY_ID: one.attributes[REPLAY_ID] + "-again"})
            for one in messages
        ]
        await _publish_to(self, subscription, again)
        return await _publish_to(self, subscription, messages)

    GoogleOutlet.publish_to = publish_to  # type: ignore[method-assign]


def not_synced() -> None:
    """Commits are written and not synced: only a power cut shows it."""

    def connect(path: Path, schema: database.Schema, mode: str = "rwc") -> sqlite3.Connection:
        connection = _connect(path, schema, mode)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    database._connect = connect


def order_ignored() -> None:
    """Messages of a key do not wait for each other."""

    def admit(self: OrderingKeys, key: str, sequence: int) -> bool:
        return True

    OrderingKeys.admit = admit  # type: ignore[method-assign]
