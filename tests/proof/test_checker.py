"""The traffic is what it says, and the comparison sees every kind of wrong document."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.proof.oracle import Oracle, read
from tests.proof.run import Documents, compare
from tests.proof.sender import LOST, Sent
from tests.proof.traffic import make_traffic

NOON = "2026-03-01T12:00:00Z"
ONE = "2026-03-01T13:00:00Z"
SERVICE = "ops_services/local__a"


def body(message_id: str, published: str = "", **payload: Any) -> bytes:
    message = {"messageId": message_id, "data": base64.b64encode(json.dumps(payload).encode()).decode()}
    if published:
        message["publishTime"] = published
    if "order" in payload:
        message["attributes"] = {"topic": "orders"}  # type: ignore[assignment]
    return json.dumps({"message": message, "subscription": "projects/local/subscriptions/any"}).encode()


def order(message_id: str, event_id: str, step: int, amount: int, at: str = NOON) -> bytes:
    return body(message_id, order="o1", shop="s1", step=step, amount=amount, eventId=event_id, producedAt=at)


def answered(message: int, outcome: str, status: int = 200) -> Sent:
    return Sent(message, 0.0, 0.1, 1, status, outcome)


def newest(*bodies: bytes) -> set[str]:
    """Ids of the messages that the document may show, all answers lost."""
    documents = Oracle(bodies).expected(SERVICE, {})
    return {fields["source"]["messageId"] for fields in documents if fields}


class TestOrder:
    def test_event_time_first(self) -> None:
        assert newest(
            body("m9", ONE, service="a", producedAt=NOON, sequence=9), body("m1", NOON, service="a", producedAt=ONE)
        ) == {"m1"}

    def test_then_the_sequence(self) -> None:
        assert newest(
            body("m9", ONE, service="a", producedAt=NOON), body("m1", NOON, service="a", producedAt=NOON, sequence=1)
        ) == {"m1"}

    def test_then_the_publish_time(self) -> None:
        assert newest(
            body("m9", service="a", producedAt=NOON, version="1"),
            body("m1", NOON, service="a", producedAt=NOON, version="2"),
        ) == {"m1"}

    def test_then_the_message_id_as_text(self) -> None:
        assert newest(
            body("m10", service="a", producedAt=NOON, version="1"),
            body("m9", service="a", producedAt=NOON, version="2"),
        ) == {"m9"}

    def test_all_ways_to_write_a_time(self) -> None:
        for told in (NOON, "2026-03-01T14:00:00+02:00", 1_772_366_400, 1_772_366_400_000):
            assert read(0, body("m1", service="a", producedAt=told)).order[0] == 1_772_366_400 * 10**9


class TestOneEventInSeveralMessages:
    def test_any_of_them_may_stand_for_it(self) -> None:
        copies = [body("m1", NOON, service="a", eventId="e1"), body("m2", ONE, service="a", eventId="e1")]
        assert newest(*copies) == {"m1", "m2"}

    def test_but_not_one_that_another_event_must_have_replaced(self) -> None:
        """Noon's copy of the first event is older than whatever stands for the second."""
        copies = [body("m1", NOON, service="a", eventId="e1"), body("m2", ONE, service="a", eventId="e1")]
        assert newest(*copies, body("m3", "2026-03-01T12:30:00Z", service="a", eventId="e2")) == {"m2", "m3"}

    def test_the_one_that_was_answered(self) -> None:
        copies = [body("m1", NOON, service="a", eventId="e1"), body("m2", ONE, service="a", eventId="e1")]
        oracle = Oracle(copies)
        shown = oracle.expected(SERVICE, {})[0]
        assert shown
        documents = {SERVICE: shown}
        assert compare(oracle, documents, [answered(0, "", LOST), answered(1, "duplicate")]) == []
        assert compare(oracle, documents, [answered(0, "applied"), answered(1, "duplicate")]) == []
        assert len(compare(oracle, documents, [answered(0, "duplicate"), answered(1, "applied")])) == 1

    def test_where_each_would_have_a_document_of_its_own_only_one_has(self) -> None:
        same = {"pipelineId": "p", "producedAt": NOON, "topic": "ingest-heartbeat"}
        oracle = Oracle([body("m1", **same), body("m2", **same), body("m3", **same)])
        first = {
            path: fields
            for path in oracle.paths
            if not path.endswith(("/m2", "/m3")) and (fields := oracle.expected(path, {oracle.readings[0].key: 0})[0])
        }
        second = {"ingest_events/m2": oracle.expected("ingest_events/m2", {})[0] or {}}
        lost = [answered(0, "", LOST), answered(1, "duplicate")]
        assert compare(oracle, first, lost) == []
        assert len(compare(oracle, first | second, lost)) == 1
        assert len(compare(oracle, {path: first[path] for path in first if not path.endswith("/m1")}, lost)) == 1
        assert compare(oracle, first, [answered(0, "applied")]) == []
        assert len(compare(oracle, first | second, [answered(0, "applied")])) == 1

    def test_known_by_identity(self) -> None:
        same = {"service": "a", "producedAt": NOON, "status": "ok"}
        assert Oracle([body("m1", **same), body("m2", **same), body("m3", **same, sequence=1)]).events == 2


class TestComparison:
    bodies: Sequence[bytes] = (order("m1", "e1", 1, 10), order("m2", "e2", 2, 5, at=ONE), order("m3", "e1", 1, 10))
    history: Sequence[Sent] = (answered(0, "applied"), answered(1, "applied"), answered(2, "duplicate"))

    @property
    def right(self) -> dict[str, dict[str, Any]]:
        return {
            "orders/o1": {"step": 2, "amount": 5, "message": "m2"},
            "shops/s1": {"newest": "m2", "events": 2, "amount": 15},
        }

    def complaints(self, documents: Documents, history: Sequence[Sent] | None = None) -> list[str]:
        return compare(Oracle(self.bodies), documents, history or self.history)

    def test_right(self) -> None:
        assert self.complaints(self.right) == []
        assert self.complaints({path: {**fields, "ingestedAt": NOON} for path, fields in self.right.items()}) == []

    def test_one_counted_twice(self) -> None:
        wrong = self.right | {"shops/s1": {"newest": "m2", "events": 3, "amount": 25}}
        [complaint] = self.complaints(wrong)
        assert complaint.startswith("shops/s1\n")
        for part in ('"events": 3', '"events": 2', "message m1", "message m3", "200 duplicate"):
            assert part in complaint

    def test_one_that_is_older(self) -> None:
        assert len(self.complaints(self.right | {"orders/o1": {"step": 1, "amount": 10, "message": "m1"}})) == 1

    def test_one_field_more_or_less(self) -> None:
        assert len(self.complaints(self.right | {"orders/o1": {"step": 2, "amount": 5}})) == 1
        assert len(self.complaints(self.right | {"orders/o1": {**self.right["orders/o1"], "more": 1}})) == 1

    def test_one_missing_and_one_that_nobody_sent(self) -> None:
        without = self.right
        del without["orders/o1"]
        [complaint] = self.complaints(without)
        assert "found     null" in complaint
        [complaint] = self.complaints(self.right | {"orders/o2": {}})
        assert "expected  null" in complaint

    def test_applied_twice(self) -> None:
        [complaint] = self.complaints(self.right, [*self.history, answered(2, "stale_ignored")])
        assert complaint.startswith("applied twice: ('orders', 'eventId', 'e1')")

    def test_refused_though_it_is_right(self) -> None:
        assert len(self.complaints(self.right, [*self.history, answered(0, "poison", 422)])) == 1

    def test_taken_though_no_store_can(self) -> None:
        oracle = Oracle([body("m1", topic="unstorable")])
        assert compare(oracle, {}, [answered(0, "poison", 422)]) == []
        assert len(compare(oracle, {}, [answered(0, "applied")])) == 1
        assert len(compare(oracle, {"never/m1": {}}, [answered(0, "poison", 422)])) == 1


class TestTraffic:
    traffic = make_traffic(seed=7, deliveries=20_000)

    def test_shares(self) -> None:
        times = Counter(self.traffic.deliveries)
        assert len(self.traffic.deliveries) == 20_000
        assert sum(times.values()) - len(times) == self.traffic.redelivered == 6000
        assert set(times) == set(range(len(self.traffic.messages)))
        assert len(self.traffic.messages) - self.traffic.events == self.traffic.republished == 2000

    def test_the_oracle_agrees_about_what_is_one_event(self) -> None:
        oracle = Oracle([message.body for message in self.traffic.messages])
        events = {(message.event, oracle.readings[message.number].key) for message in self.traffic.messages}
        assert len(events) == oracle.events == self.traffic.events

    def test_ties_are_decided_by_each_part_of_the_order(self) -> None:
        """Which part tells the newest event of a service from the one before it."""
        oracle = Oracle([message.body for message in self.traffic.messages])
        decided: Counter[int] = Counter()
        for path in oracle.paths:
            orders = sorted({reading.order for reading in oracle.messages_about(path)}, reverse=True)
            if len(orders) > 1:
                decided[next(part for part in range(4) if orders[0][part] != orders[1][part])] += 1
        assert all(decided[part] >= 10 for part in range(4)), decided

    def test_out_of_order(self) -> None:
        firsts = list(dict.fromkeys(number for number in self.traffic.deliveries if number < self.traffic.events))
        late = [1 for before, after in pairwise(firsts) if after < before]
        assert len(late) > len(firsts) / 4

    def test_the_same_again(self) -> None:
        assert make_traffic(7, 2000) == make_traffic(7, 2000)
        assert make_traffic(7, 2000) != make_traffic(8, 2000)
