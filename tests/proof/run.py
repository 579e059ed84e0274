"""One run: traffic is sent to workers that are killed now and then, and what the store then holds is compared with the
oracle, document by document."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.proof.oracle import Key, Oracle, Reading, without_clock
from tests.proof.sender import FINAL, LOST, Sender, Sent
from tests.proof.traffic import Traffic, make_traffic
from tests.proof.workers import Workers
from tests.support import http

DONE = ("applied", "stale_ignored")  # an event's first and only effect
REFUSED = (422, "poison")  # the answer for what no store can take
MARKS = ("ops_dedupe", "ingest_pipelines_dedupe")  # documents too, where a store has nothing else
BLOCKED = "blocked/it"  # what makes the unstorable so
PAGE_SIZE = 1000
SHOWN = 5  # mismatches told in full

Documents = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Report:
    seed: int
    traffic: Traffic
    kills: int
    statuses: Counter[int]
    outcomes: Counter[str]
    recovered: int  # answers that were lost after the work was done
    documents: int
    seconds: float
    mismatches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        traffic, deliveries = self.traffic, len(self.traffic.deliveries)
        answers = [f"{status or 'no answer'} {count:,}" for status, count in sorted(self.statuses.items())]
        lines = [
            f"seed {self.seed}: {deliveries:,} deliveries, of which {traffic.redelivered:,} are redeliveries",
            f"{len(traffic.messages):,} messages ({traffic.republished:,} republished), {traffic.events:,} events",
            f"{self.seconds:.1f} s, {deliveries / self.seconds:,.0f} deliveries/s, {self.kills} workers killed",
            f"requests: {sum(self.statuses.values()):,}; {', '.join(answers)}",
            f"outcomes: {', '.join(f'{name} {count:,}' for name, count in sorted(self.outcomes.items()))}",
            f"answers lost after the work was done, and not done again: {self.recovered:,}",
            f"{self.documents:,} documents, {len(self.mismatches)} mismatches",
            *self.mismatches[:SHOWN],
        ]
        return "\n".join(lines)


async def prove(workers: Workers, seed: int, deliveries: int, kills: int, within: float) -> Report:
    """Fails with TimeoutError when it is not through `within` so many seconds."""
    traffic = make_traffic(seed, deliveries)
    oracle = Oracle([message.body for message in traffic.messages])
    assert oracle.events == traffic.events, "the oracle and the traffic disagree about which messages are one event"
    await workers.start()
    await asyncio.to_thread(http.push, workers.all[0].url, "blocker", b'{"topic": "blocker"}')
    begun = time.monotonic()
    async with asyncio.timeout(within):
        history, statuses = await _sent(workers, traffic, seed, kills)
        seconds = time.monotonic() - begun
        # Once more, with nothing under way: what counts is what the store has, not what a process remembers.
        for worker in workers.all[1:]:
            await worker.kill()
        await workers.all[0].kill()
        await workers.all[0].start()
        documents = await asyncio.to_thread(all_documents, workers.all[0].url)
    blocked = documents.pop(BLOCKED, None)
    complaints = [] if blocked == {"number": "a text"} else [f"{BLOCKED} was changed to {blocked}"]
    return Report(
        seed=seed,
        traffic=traffic,
        kills=workers.kills,
        statuses=statuses,
        outcomes=Counter(sent.outcome for sent in history if sent.status in FINAL),
        recovered=_recovered(oracle, history),
        documents=len(documents),
        seconds=seconds,
        mismatches=[*complaints, *compare(oracle, documents, history), *workers.complaints()],
    )


async def _sent(workers: Workers, traffic: Traffic, seed: int, kills: int) -> tuple[Sequence[Sent], Counter[int]]:
    chance = random.Random(seed + 1)
    deliveries = len(traffic.deliveries)
    moments = sorted(chance.sample(range(deliveries // 50, deliveries * 49 // 50), kills))
    due: asyncio.Queue[None] = asyncio.Queue()

    def on_answer(answered: int) -> None:
        while moments and answered >= moments[0]:
            moments.pop(0)
            due.put_nowait(None)

    async def killing() -> None:
        for _ in range(kills):
            await due.get()
            await workers.kill_one(chance)

    sender = Sender(traffic, workers, seed + 2, on_answer)
    async with asyncio.TaskGroup() as group:
        group.create_task(killing())
        group.create_task(sender.run())
    return sender.history, sender.statuses


def all_documents(url: str) -> dict[str, Mapping[str, Any]]:
    """As its users read them."""
    found: dict[str, Mapping[str, Any]] = {}
    for collection in http.get(f"{url}/api/v1/documents").body["collections"]:
        if collection in MARKS:
            continue
        token = ""
        while True:
            page = http.get(f"{url}/api/v1/documents/{collection}?pageSize={PAGE_SIZE}&pageToken={token}").body
            found |= {document["path"]: document["fields"] for document in page["documents"]}
            token = page["nextPageToken"]
            if not token:
                break
    return found


# The comparison.


def compare(oracle: Oracle, documents: Documents, history: Sequence[Sent]) -> list[str]:
    """Every difference, told with all that was sent about the document."""
    story = _Story(oracle, history)
    stands_for, complaints = _what_was_applied(oracle, history, story)
    for path in sorted(oracle.paths | documents.keys()):
        found = without_clock(documents[path]) if path in documents else None
        expected = oracle.expected(path, stands_for) if path in oracle.paths else [None]
        if found not in expected:
            complaints.append(story.of_document(path, found, expected))
    for paths in oracle.alternatives(stands_for):
        if sum(path in documents for path in paths) != 1:
            told = [story.of_document(path, documents.get(path)) for path in paths]
            complaints.append("\n".join(["one of these must be there, and no other:", *told]))
    return complaints


def _what_was_applied(oracle: Oracle, history: Sequence[Sent], story: _Story) -> tuple[dict[Key, int], list[str]]:
    """Which message stands for each event, by the answers. More than one for an event is a mismatch by itself."""
    stands_for: dict[Key, int] = {}
    complaints = []
    for sent in history:
        if sent.status not in FINAL:
            continue
        reading = oracle.readings[sent.message]
        if not reading.effects:
            if (sent.status, sent.outcome) != REFUSED:
                complaints.append(f"not refused: {reading.message_id}  {sent}")
        elif sent.outcome in DONE:
            if reading.key in stands_for:
                complaints.append(f"applied twice: {reading.key}\n{story.of_messages(oracle.copies(reading.key))}")
            stands_for[reading.key] = sent.message
        elif sent.outcome != "duplicate":
            complaints.append(f"refused: {reading.message_id}  {sent}")
    return stands_for, complaints


def _recovered(oracle: Oracle, history: Sequence[Sent]) -> int:
    """Events that nobody was told were applied: their answer was lost, and every later one said duplicate."""
    told = {oracle.readings[sent.message].key for sent in history if sent.outcome in DONE}
    lost = {oracle.readings[sent.message].key for sent in history if sent.status == LOST}
    return len(lost - told)


class _Story:
    """What was sent about something, for people who look for a bug."""

    def __init__(self, oracle: Oracle, history: Sequence[Sent]) -> None:
        self._oracle = oracle
        self._sent: dict[int, list[Sent]] = defaultdict(list)
        for sent in history:
            self._sent[sent.message].append(sent)

    def of_document(self, path: str, found: object, expected: Sequence[Mapping[str, Any] | None] = ()) -> str:
        lines = [path, f"  found     {json.dumps(found, sort_keys=True)}"]
        lines += [f"  expected  {json.dumps(fields, sort_keys=True)}" for fields in expected]
        return "\n".join([*lines, self.of_messages(self._oracle.messages_about(path))])

    def of_messages(self, readings: Sequence[Reading]) -> str:
        """In the order of their events, so that the last is the newest."""
        lines = []
        for reading in sorted(readings, key=lambda reading: reading.order):
            lines.append(f"  message {reading.message_id}  order {reading.order}  event {reading.key}")
            lines += [f"    {sent}" for sent in self._sent[reading.number]]
        return "\n".join(lines)
