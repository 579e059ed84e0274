"""Between the handlers and the store: what waits is applied together, in a bounded number of transactions at once.

A store that cannot do it now is asked again, with growing pauses. A write that can never be stored does not harm its
neighbours: the batch is split until it is alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.documents import DocumentStore, Result, Write
from holdfast.consumer.error_kinds import TRANSIENT, kind_of_store_error
from holdfast.errors import Misconfigured, StorageUnavailable
from holdfast.settings import ConsumerSettings

# Of the payloads in one transaction. Firestore takes 10 MiB, and documents carry some of a payload twice.
BATCH_BYTES = 4_000_000


@dataclass(slots=True)
class _Waiting:
    write: Write
    size: int
    done: asyncio.Future[Result]


class Coalescer:
    def __init__(self, store: DocumentStore, clock: Clock, settings: ConsumerSettings) -> None:
        self.retries = 0  # of transactions, since the start of the process
        self.errors: Counter[str] = Counter()  # of the store, by kind
        self.transactions = 0  # under way
        self.in_transactions = 0  # writes in them
        self._store = store
        self._clock = clock
        self._settings = settings
        self._waiting: deque[_Waiting] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._is_starting = False

    async def apply(self, write: Write, size: int) -> Result:
        """Raises what the store raised for this write, after its retries. `size` is its payload's, in bytes."""
        waiting = _Waiting(write, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._start_worker()
        return await waiting.done

    def _start_worker(self) -> None:
        """It takes what waits when it first runs: whatever comes until then goes with it."""
        if self._is_starting or len(self._workers) >= self._settings.max_workers:
            return
        self._is_starting = True
        self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        self._is_starting = False
        try:
            while batch := self._next_batch():
                if self._waiting:
                    self._start_worker()
                await self._transact(batch)
        finally:
            # In the same step in which it found that nothing waits: whatever comes next starts another worker.
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)

    async def _transact(self, batch: Sequence[_Waiting]) -> None:
        self.transactions += 1
        self.in_transactions += len(batch)
        try:
            await self._apply(batch)
        finally:
            self.transactions -= 1
            self.in_transactions -= len(batch)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < self._store.largest_batch and size < BATCH_BYTES:
            waiting = self._waiting.popleft()
            if not waiting.done.done():  # else whoever sent it has gone: nothing was promised
                batch.append(waiting)
                size += waiting.size
        return batch

    async def _apply(self, batch: Sequence[_Waiting]) -> None:
        try:
            results = await self._with_retries([waiting.write for waiting in batch])
        except StorageUnavailable as error:  # counted at each attempt
            _fail(batch, error)
            return
        except Misconfigured as error:  # as above it is not about any one of them
            self.errors[kind_of_store_error(error)] += 1
            _fail(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - each sender is told, and classifies it
            if len(batch) == 1:
                self.errors[kind_of_store_error(error)] += 1
                _fail(batch, error)
                return
        except BaseException:  # stopping: nobody is told that it was done, so it comes again
            for waiting in batch:
                waiting.done.cancel()
            raise
        else:
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.done.done():
                    waiting.done.set_result(result)
            return
        middle = len(batch) // 2
        await self._apply(batch[:middle])
        await self._apply(batch[middle:])

    async def _with_retries(self, writes: Sequence[Write]) -> Sequence[Result]:
        settings = self._settings
        give_up_ns = self._clock.now_ns() + round(settings.retry_max_total_seconds * NANOSECONDS)
        attempt = 1
        while True:
            try:
                return await self._store.apply(writes)
            except StorageUnavailable:
                self.errors[TRANSIENT] += 1
                pause = backoff_seconds(
                    settings.retry_initial_backoff_seconds, settings.retry_max_backoff_seconds, attempt
                )
                again_ns = self._clock.now_ns() + round(pause * NANOSECONDS)
                if attempt >= settings.retry_max_attempts or again_ns > give_up_ns:
                    raise
            attempt += 1
            self.retries += 1
            await self._clock.sleep_until(again_ns)

    async def close(self) -> None:
        """Waits for what was taken in."""
        while self._workers:
            await asyncio.wait(set(self._workers))


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.done.done():
            waiting.done.set_exception(error)
