"""The registry that users write against."""

from __future__ import annotations

import pytest

from holdfast.consumer import Consumer, Event, Misconfigured, Poison, Transient, Upsert
from holdfast.consumer.app import Route
from holdfast.errors import AlreadyExists, HandlingFailure


def test_a_handler_is_found_by_topic_id_or_path() -> None:
    app = Consumer()

    @app.on("projects/p/topics/orders")
    def orders(event: Event) -> Upsert:
        return Upsert("orders", event.message_id, {})

    assert app.route("orders") == Route(orders, marks=f"ops_dedupe_{__name__}")
    assert app.topics == ("orders",)


@pytest.mark.parametrize(("name", "marks"), [("", "ops_dedupe"), ("Web Shop", "ops_dedupe_web-shop")])
def test_a_consumer_keeps_its_dedupe_records_apart(name: str, marks: str) -> None:
    app = Consumer(name)
    app.on("orders")(lambda event: Upsert("a", "b", {}))
    assert app.copy().route("orders").marks == marks


def test_a_topic_has_one_handler() -> None:
    app = Consumer()
    app.on("orders")(lambda event: Upsert("a", "b", {}))
    with pytest.raises(AlreadyExists, match="orders"):
        app.on("orders")(lambda event: Upsert("c", "d", {}))


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "__a__", "\udfff", "x" * 1501, "é" * 751, 5, None])
def test_ids_that_no_store_could_hold_are_poison(bad: str) -> None:
    with pytest.raises(Poison, match=r"^collection: "):
        Upsert(bad, "id", {})
    with pytest.raises(Poison, match=r"^document id: "):
        Upsert("things", bad, {})


@pytest.mark.parametrize("good", ["a", "...", "a b", "é" * 750, "😀", "a.b-c_d"])
def test_other_ids_are_fine(good: str) -> None:
    Upsert(good, good, {})


def test_what_handlers_may_raise_is_exported() -> None:
    assert all(issubclass(kind, HandlingFailure) for kind in (Poison, Transient, Misconfigured))
