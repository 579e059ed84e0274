"""Routes written in holdfast.toml: what they make of events, and what is refused at the start."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.consumer import Consumer, Event, Poison, Upsert
from holdfast.consumer.declared import add_declared_routes, declared_topics
from holdfast.errors import SettingError


def handled(route: dict[str, Any], data: dict[str, Any], event_id: str = "") -> Upsert:
    app = add_declared_routes(Consumer(), [{"topic": "orders", "collection": "orders", **route}])
    found = app.route("orders")
    result = found.handler(Event(data, "m1", "orders", event_id=event_id))
    assert isinstance(result, Upsert)
    return result


DATA = {"order": {"id": 7, "total": 12.5, "lines": [{"sku": "a"}, {"sku": "b"}]}, "note": None, "a.b": 1}


def test_all_of_the_payload_by_default() -> None:
    assert handled({}, DATA) == Upsert("orders", "m1", DATA)
    assert handled({}, DATA, event_id="e1").id == "e1"


def test_the_named_fields() -> None:
    route = {
        "id": "order.id",
        "fields": {"total": "order.total", "second": "order.lines.1.sku", "note": "note", "absent": "order.nothing.x"},
    }
    assert handled(route, DATA) == Upsert("orders", "7", {"total": 12.5, "second": "b", "note": None})


def test_a_list_of_fields_keeps_their_names() -> None:
    assert handled({"fields": ["note", "order"]}, DATA).fields == {"note": None, "order": DATA["order"]}


@pytest.mark.parametrize("path", ["order.lines.2.sku", "order.lines.-1.sku", "order.lines.x", "order.id.x", "a.b", ""])
def test_a_path_to_nothing_is_no_field(path: str) -> None:
    if not path:
        with pytest.raises(SettingError, match=r"consumer.routes\[0\].fields.x"):
            handled({"fields": {"x": path}}, DATA)
    else:
        assert handled({"fields": {"x": path}}, DATA).fields == {}


@pytest.mark.parametrize("value", [None, "", True, 1.5, [], {}])
def test_an_id_that_names_nothing_is_poison(value: object) -> None:
    with pytest.raises(Poison, match="id: must be text or a whole number"):
        handled({"id": "id"}, {"id": value})


def test_an_id_that_is_absent_is_poison() -> None:
    with pytest.raises(Poison, match=r"order\.id: must be text or a whole number"):
        handled({"id": "order.id"}, {})


@pytest.mark.parametrize(
    ("route", "path"), [({"required": ["x"]}, "x"), ({"fields": {"x": "deep.x"}, "required": ["x"]}, r"deep\.x")]
)
@pytest.mark.parametrize("data", [{}, {"x": None, "deep": {"x": None}}])
def test_what_is_required_must_be_there(route: dict[str, Any], path: str, data: dict[str, Any]) -> None:
    with pytest.raises(Poison, match=f"{path}: is missing"):
        handled(route, data)


@pytest.mark.parametrize(
    ("route", "key"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": 7}, "topic"),
        ({"topic": "no topic!"}, "topic"),
        ({"collection": ""}, "collection"),
        ({"collection": "a/b"}, "collection"),
        ({"collection": "__x__"}, "collection"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": "order..id"}, "id"),
        ({"id": ".id"}, "id"),
        ({"fields": {"total": "order.total."}}, r"fields\.total"),
        ({"fields": ["order..total"]}, "fields"),
        ({"fields": "total"}, "fields"),
        ({"fields": [1]}, "fields"),
        ({"fields": {"total": 1}}, r"fields\.total"),
        ({"required": "total"}, "required"),
        ({"fields": ["a"], "required": ["b"]}, "required"),
        ({"filds": []}, "filds"),
    ],
)
def test_a_wrong_route_is_refused_by_its_key(route: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingError, match=rf"consumer\.routes\[0\]\.{key} "):
        handled(route, {})


def test_what_is_required_of_a_whole_payload_may_lie_deep() -> None:
    route = {"required": ["order.total"]}
    data = {"order": {"id": "o1", "total": 5}}
    assert handled(route, data).fields == data
    with pytest.raises(Poison, match=r"order\.total: is missing"):
        handled(route, {"order": {"id": "o1"}})


@pytest.mark.parametrize("missing", ["topic", "collection"])
def test_what_every_route_needs(missing: str) -> None:
    route = {"topic": "orders", "collection": "orders"}
    del route[missing]
    with pytest.raises(SettingError, match=missing):
        add_declared_routes(Consumer(), [route])


def test_a_topic_has_one_handler() -> None:
    app = Consumer()

    @app.on("orders")
    def order(event: Event) -> Upsert:
        return Upsert("orders", "1", {})

    with pytest.raises(SettingError, match="has a handler already"):
        add_declared_routes(app, [{"topic": "orders", "collection": "orders"}])


def test_the_users_own_consumer_is_left_as_it_is() -> None:
    app = Consumer()
    routes = [{"topic": "projects/p/topics/orders", "collection": "orders"}]
    for _ in range(2):
        assert add_declared_routes(app, routes).topics == ("orders",)
    assert app.topics == ()
    assert declared_topics(routes) == ["orders"]
