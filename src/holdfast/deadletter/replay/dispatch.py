"""Sends messages of a job: claims them, hands them to the broker, and keeps what became of that.

A crash is harmless at every point. What was claimed and not kept as sent is still pending: it is sent once more with
the same REPLAY_ID and content, and the broker drops it if it was out already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.replay.claiming import Claiming, Pending
from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.replay.screening import Key, key_of
from holdfast.deadletter.sending import Sending
from holdfast.errors import BadInput, FailedPrecondition, HoldfastError, NotFound
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Message

# Somebody else changes the row, such as its legal hold, each time that it is about to be marked.
MOST_TRIES = 10

# A path, and whether it is that of a single subscription.
Destination = tuple[str, bool]


@dataclass(slots=True)
class Letter:
    """`message_id` once it is out, `problem` once it cannot be; neither when it has to be tried again."""

    item: Item
    failure: FailedMessage
    message: Message
    message_id: str = ""
    problem: str = ""
    has_no_target: bool = False


@dataclass(frozen=True, slots=True)
class Dispatched:
    """`items` are those that are out or over, as they are kept. `trouble` is why others must be tried again."""

    items: Sequence[Pending]
    sent: int = 0
    trouble: HoldfastError | None = None


class Dispatch:
    """Of one job."""

    def __init__(self, claiming: Claiming, outlet: Outlet, sending: Sending, redaction: Redaction) -> None:
        self._claiming = claiming
        self._screening = claiming.screening
        self._store = claiming.store
        self._outlet = outlet
        self._sending = sending
        self._redaction = redaction

    async def send(self, batch: Sequence[Pending]) -> Dispatched:
        claims = await self._claiming.claim(batch)
        letters = [await self._written(item, failure) for item, failure in claims.claimed]
        trouble = await self._deliver(_deliverable(letters))
        ended = await self._keep(letters, claims.skipped)
        return Dispatched(ended, sum(bool(letter.message_id) for letter in letters), trouble)

    async def _written(self, item: Item, failure: FailedMessage) -> Letter:
        try:
            return Letter(item, failure, await self._sending.message_for(failure))
        except BadInput as error:
            return Letter(item, failure, Message(b""), problem=str(error))

    # Delivering.

    async def _deliver(self, letters: Sequence[Letter]) -> HoldfastError | None:
        by_destination: dict[Destination, list[Letter]] = {}
        for letter in letters:
            destination = self._screening.destination(letter.failure), self._screening.is_addressed(letter.failure)
            by_destination.setdefault(destination, []).append(letter)
        return _first(await asyncio.gather(*(self._deliver_to(where, some) for where, some in by_destination.items())))

    async def _deliver_to(self, destination: Destination, letters: Sequence[Letter]) -> HoldfastError | None:
        path, is_addressed = destination
        if not is_addressed:
            return await self._one_by_one(destination, letters)
        try:
            ids = await self._outlet.publish_to(path, [letter.message for letter in letters])
        except BadInput:  # all or none: one of them is why
            return await self._one_by_one(destination, letters)
        except (NotFound, FailedPrecondition) as error:
            _has_no_target(letters, error)
        except HoldfastError as error:
            return error
        else:
            for letter, message_id in zip(letters, ids, strict=True):
                letter.message_id = message_id
        return None

    async def _one_by_one(self, destination: Destination, letters: Sequence[Letter]) -> HoldfastError | None:
        """At once, but those of one key one after the other."""
        by_key: dict[object, list[Letter]] = {}
        for at, letter in enumerate(letters):
            by_key.setdefault(key_of(letter.failure) or at, []).append(letter)
        return _first(await asyncio.gather(*(self._in_order(destination, some) for some in by_key.values())))

    async def _in_order(self, destination: Destination, letters: Sequence[Letter]) -> HoldfastError | None:
        """None of them behind one that the broker refused."""
        for letter in letters:
            try:
                letter.message_id = await self._deliver_one(destination, letter.message)
            except BadInput as error:  # a schema's complaint may quote the payload
                letter.problem = self._redaction.of_message(letter.message, str(error))
                return None
            except (NotFound, FailedPrecondition) as error:
                _has_no_target([letter], error)
            except HoldfastError as error:
                return error
        return None

    async def _deliver_one(self, destination: Destination, message: Message) -> str:
        path, is_addressed = destination
        if is_addressed:
            return (await self._outlet.publish_to(path, [message]))[0]
        return await self._outlet.publish(path, message)

    # Keeping.

    async def _keep(self, letters: Sequence[Letter], skipped: Sequence[Pending]) -> list[Pending]:
        """The items, and with them the failures: as replayed, or free again."""
        now = self._claiming.clock.now_ns()
        tried = [letter for letter in letters if letter.message_id or letter.problem]
        ended: list[Pending] = [(self._ended(letter, now), letter.failure) for letter in tried]
        ended += skipped
        rows = [_row(letter, now) for letter in tried]
        rows += [row.release_replay() for _, row in skipped if row is not None and self._screening.has_claimed(row)]
        if not ended:
            return []
        kept = await self._store.save_items([item for item, _ in ended], rows)
        for letter, is_kept in zip(tried, kept, strict=False):
            if not is_kept:
                await self._keep_row(letter, now)
        return ended

    def _ended(self, letter: Letter, now: int) -> Item:
        if letter.message_id:
            # Of a topic's subscribers nobody tells what they made of it.
            state = ItemState.SENT if self._screening.is_addressed(letter.failure) else ItemState.SUCCEEDED
            return replace(letter.item, state=state, message_id=letter.message_id, sent_at_ns=now)
        if letter.has_no_target:
            return replace(letter.item, state=ItemState.SKIPPED, note=letter.problem)
        if key := key_of(letter.failure):
            self._claiming.failed_keys.add(key)
        return replace(letter.item, state=ItemState.FAILED, note=f"it cannot be sent: {letter.problem}")

    async def _keep_row(self, letter: Letter, now: int) -> None:
        """Somebody changed it after it was claimed: put it under legal hold, or erased it."""
        for _ in range(MOST_TRIES):
            found = await self._store.get(letter.failure.id)
            if found is None or not self._screening.has_claimed(found):
                return
            letter.failure = found
            if (await self._store.save([_row(letter, now)]))[0]:
                return


def _deliverable(letters: Sequence[Letter]) -> list[Letter]:
    """None behind one of its key that cannot be sent: those stay pending, and are skipped next time."""
    failed: set[Key] = set()
    found: list[Letter] = []
    for letter in letters:
        key = key_of(letter.failure)
        if not letter.problem and key not in failed:
            found.append(letter)
        elif key is not None:
            failed.add(key)
    return found


def _row(letter: Letter, now: int) -> FailedMessage:
    if not letter.message_id:
        return letter.failure.release_replay()
    return letter.failure.mark_replayed(now, letter.failure.replay_id, letter.message_id)


def _has_no_target(letters: Sequence[Letter], error: HoldfastError) -> None:
    for letter in letters:
        letter.problem, letter.has_no_target = str(error), True


def _first(troubles: Sequence[HoldfastError | None]) -> HoldfastError | None:
    return next((trouble for trouble in troubles if trouble is not None), None)
