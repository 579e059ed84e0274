"""Backoff, timestamps, names, wire bytes, the tail cache, timers and logs: small parts that others build on."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from google.pubsub_v1.types import pubsub
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backoff import backoff_seconds
from holdfast.broker import limits, wire
from holdfast.broker.log import StoredMessage
from holdfast.broker.signals import Signal, Timers
from holdfast.broker.tail_cache import OVERHEAD_BYTES, TailCache
from holdfast.cli.values import flat
from holdfast.errors import BadInput
from holdfast.model.message import Message
from holdfast.model.names import check_subscription, check_topic
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339
from holdfast.telemetry import JsonFormatter, TextFormatter
from holdfast.testing import ManualClock
from holdfast.wiring.lifetimes import background


@given(st.floats(0.01, 600), st.floats(0, 600), st.integers(1, 10_000), st.floats(0, 1))
def test_backoff_stays_between_its_bounds(minimum: float, more: float, failures: int, spread: float) -> None:
    wait = backoff_seconds(minimum, minimum + more, failures, lambda: spread)
    assert minimum <= wait <= minimum + more


def test_backoff_doubles() -> None:
    assert [backoff_seconds(10, 600, failures, lambda: 0) for failures in range(9)] == [
        0, 10, 20, 40, 80, 160, 320, 600, 600,
    ]  # fmt: skip


def test_jitter_makes_waits_longer_and_the_longest_shorter() -> None:
    waits = [backoff_seconds(10, 600, failures, lambda: 1) for failures in (1, 3, 7)]
    assert waits == pytest.approx([11, 44, 540])


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_timestamps_survive_text(when_ns: int) -> None:
    assert parse_rfc3339(format_rfc3339(when_ns)) == when_ns


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1970-01-01T00:00:01Z", 1), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00:00.5Z", 0.5)],
)
def test_timestamps_are_read(text: str, seconds: float) -> None:
    assert parse_rfc3339(text) == seconds * 1e9


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-08", "2026-01-08T12:00:00", "2026-13-08T12:00:00Z", "١٩٧٠-٠١-٠١T٠٠:٠٠:٠٠Z"]
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_rfc3339(text)


@pytest.mark.parametrize("name", ["abc", "a" * 255, "A-_.~+%9"])
def test_good_names(name: str) -> None:
    check_topic("topic", f"projects/p/topics/{name}")
    check_subscription("subscription", f"projects/p/subscriptions/{name}")


@pytest.mark.parametrize(
    "path",
    ["", "abc", "projects/p/topics/", "projects/p/topics/ab", "projects/p/topics/1ab", "projects/p/topics/goog",
     "projects//topics/abc", "projects/p/topics/a/b", "projects/p/subscriptions/abc", "projects/p/topics/äbc",
     "projects/p/topics/" + "a" * 256, "projects/p/topics/abc\n"],
)  # fmt: skip
def test_bad_names_are_refused_by_field(path: str) -> None:
    with pytest.raises(BadInput, match=r"^topic: "):
        check_topic("topic", path)


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(st.binary(max_size=200), st.dictionaries(_texts, _texts, max_size=5), _texts, st.integers(0, 2**62))
def test_stored_bodies_are_messages_with_id_and_time(
    data: bytes, attributes: dict[str, str], key: str, when_ns: int
) -> None:
    sent = Message(data, attributes, key)
    (body,) = wire.stored_bodies([wire.encode(sent)], [b"123"], when_ns)
    assert wire.decode(body) == Message(data, attributes, key, "123", when_ns)


@given(st.binary(max_size=300), st.integers(0, 1 << 31), st.text(st.characters(codec="ascii"), max_size=200))
def test_received_messages_are_what_protobuf_reads(data: bytes, attempt: int, ack_id: str) -> None:
    (body,) = wire.stored_bodies([wire.encode(Message(data))], [b"7"], 1)
    attempt = min(attempt, (1 << 31) - 1)
    read = pubsub.PullResponse.pb().FromString(wire.received_message(ack_id, body, attempt) * 2)
    assert [item.ack_id for item in read.received_messages] == [ack_id] * 2
    assert read.received_messages[0].message.data == data
    assert read.received_messages[1].delivery_attempt == attempt


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.dictionaries(_texts, _texts, max_size=3)), max_size=5),
    st.binary(max_size=20),
)
def test_a_publish_request_is_cut_into_its_messages(items: list[tuple[bytes, dict[str, str]]], odd: bytes) -> None:
    messages = [wire.encode(Message(data, attributes)) for data, attributes in items]
    request = wire.PublishRequest(topic="t", messages=[wire.PubsubMessage.FromString(message) for message in messages])
    unknown = b"\xfa\x06" + wire.varint(len(odd)) + odd  # field 111, which no version has
    for serialized in (request.SerializeToString(), request.SerializeToString() + unknown):
        topic, pieces = wire.split_publish_request(serialized)
        assert topic == "t"
        assert [wire.decode(piece) for piece in pieces] == [wire.decode(message) for message in messages]


@given(st.binary(max_size=100))
def test_any_bytes_are_a_publish_request_or_a_clear_error(garbage: bytes) -> None:
    try:
        _, pieces = wire.split_publish_request(garbage)
    except BadInput:
        return
    for piece in pieces:
        wire.decode(piece)


def test_ids_that_pass_a_power_of_ten_are_stored_right() -> None:
    bodies = wire.stored_bodies([wire.encode(Message(b"a"))] * 2, [b"99", b"100"], 5)
    assert [wire.decode(body).message_id for body in bodies] == ["99", "100"]


@given(st.binary(max_size=400), st.dictionaries(st.text(max_size=300), st.text(max_size=1100), max_size=3), _texts)
def test_the_quick_look_never_lets_a_bad_message_through(data: bytes, attributes: dict[str, str], key: str) -> None:
    try:
        encoded = wire.encode(Message(data, attributes, key))
    except UnicodeEncodeError:
        return
    if not limits._in_doubt([encoded]):
        limits._check_message("message", wire.PubsubMessage.FromString(encoded))


@pytest.mark.parametrize("size", [0, 1, 5, 127, 128, 300, 16_383, 16_384, 100_000])
def test_no_size_of_the_data_hides_a_key_of_googles(size: int) -> None:
    good = wire.encode(Message(b"x" * size, {"region": "north"}))
    bad = wire.encode(Message(b"x" * size, {"goog-x": "1"}))
    limits.check_publish([good], len(good))
    with pytest.raises(BadInput, match=r"messages\[1\]\.attributes"):
        limits.check_publish([good, bad], len(good) + len(bad))


def test_a_length_that_is_written_longer_than_it_must_be_hides_nothing() -> None:
    attributes = wire.encode(Message(b"", {"k" * 300: "1"}))
    odd = b"\x0a\x81\x80\x00x" + attributes
    assert wire.decode(odd).data == b"x"
    with pytest.raises(BadInput, match="at most 256 bytes"):
        limits.check_publish([odd], len(odd))


def test_only_an_odd_message_is_taken_apart() -> None:
    usual = [wire.encode(Message(b"goog" * size, {"type": "order"})) for size in (1, 31, 32, 4_000)]
    odd = [wire.encode(Message(b"x" * 300, {"note": "y" * 300})), wire.encode(Message(b"", {"type": "order"}))]
    assert limits._in_doubt([*usual, *odd]) == [4, 5]


def test_the_cache_keeps_the_newest_within_its_budget() -> None:
    cache = TailCache(10 * (100 + OVERHEAD_BYTES))
    for sequence in range(1, 31):
        cache.add(1, [StoredMessage(sequence, 0, b"x" * 100)], 100)
    assert [message.sequence for message in cache.run(1, 21, 31, 100)] == list(range(21, 31))
    assert cache.run(1, 20, 31, 100) == []
    assert cache.one(1, 20) is None
    assert cache.run(1, 25, 31, 2)[-1].sequence == 26
    cache.forget_topic(1)
    assert cache.run(1, 25, 31, 2) == []
    cache.add(2, [StoredMessage(1, 0, b"y" * 5000)], 5000)  # larger than all: not kept, and no harm done
    assert cache.one(2, 1) is None


async def test_timers_call_in_order_and_an_earlier_one_wakes_first() -> None:
    clock = ManualClock()
    timers, called = Timers(clock), []
    start = clock.now_ns()
    timers.at(start + 30, lambda: called.append("late"))
    timers.at(start + 10, lambda: called.append("early"))
    timers.at(start + 10, lambda: timers.at(start + 20, lambda: called.append("made by a timer")))
    for _ in range(40):
        clock.advance(1e-9)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert called == ["early", "made by a timer", "late"]
    timers.at(clock.now_ns() + 10, lambda: called.append("never"))
    timers.stop()
    clock.advance(1)
    await asyncio.sleep(0)
    assert "never" not in called


async def test_a_signal_between_looking_and_waiting_is_not_missed() -> None:
    signal = Signal()
    seen = signal.version
    signal.fire()
    await asyncio.wait_for(signal.wait_beyond(seen), 1)


async def test_work_in_the_background_that_ends_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def faulty() -> None:
        raise RuntimeError("a fault of ours")

    async def beside() -> None:
        async with background(faulty()):
            for _ in range(3):
                await asyncio.sleep(0)
            assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
            assert "a fault of ours" in caplog.text

    with pytest.raises(RuntimeError):
        await beside()
    caplog.clear()
    async with background(asyncio.sleep(60)):
        pass
    assert caplog.records == []


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_a_log_line_is_one_line_whatever_is_in_it(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("holdfast.x", logging.ERROR, "", 0, "message %s", ("poison",), None)
    record.fields = {"error": "bad\n\x1b[31mERROR forged\x00", "empty": "", "long": "x" * 10_000, "attempt": 3}
    line = formatter.format(record)
    assert line.isprintable()
    assert len(line) < 2000
    assert "empty" not in line
    assert "message poison" in line


def test_json_lines_have_the_fields() -> None:
    record = logging.LogRecord("holdfast.x", logging.WARNING, "", 0, "hello", (), None)
    record.fields = {"messageId": "7"}
    line = json.loads(JsonFormatter().format(record))
    assert (line["severity"], line["message"], line["messageId"]) == ("WARNING", "hello", "7")


def test_a_dot_within_a_name_is_not_a_step() -> None:
    shown = flat({"a.b": 1, "a": {"b": 2, "c\\d": {"e.f": 3}}})
    assert shown == [("a\\.b", "1"), ("a.b", "2"), ("a.c\\\\d.e\\.f", "3")]
