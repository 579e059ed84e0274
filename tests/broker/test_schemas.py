"""Schemas: definitions, what fits them, revisions, and what a publish is held to."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.broker.log import Change, DeleteRecord, PutRecord
from holdfast.broker.schemas import protoc, registry
from holdfast.broker.schemas.definitions import AVRO, LARGEST_BYTES, PROTOCOL_BUFFER, Compiled, check_definition, load
from holdfast.broker.schemas.encoding import BINARY, JSON, check_message, decoded
from holdfast.broker.schemas.problems import BadDefinition, DoesNotFit
from holdfast.broker.schemas.registry import DELETED_SCHEMA, SchemaRegistry, schema_attributes
from holdfast.broker.wire import PubsubMessage
from holdfast.broker.wire_schemas import PbSchemaSettings, settings_from_pb, settings_to_pb
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    CorruptData,
    FailedPrecondition,
    HoldfastError,
    NotFound,
    StorageUnavailable,
)
from holdfast.model.resources import SchemaSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock

NAME = "projects/local/schemas/order"

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "price", "type": "double"},
                        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BOOK", "TOY"]}},
                    ],
                },
            },
        },
    ],
}
GOOD: dict[str, Any] = {"id": "a", "amount": 1, "note": None, "lines": [{"price": 1.5, "kind": "BOOK"}]}

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}

PROTO = """syntax = "proto3";
message Order {
  message Line { double price = 1; Kind kind = 2; Line inner = 3; }
  enum Kind { BOOK = 0; TOY = 1; }
  string id = 1;
  int32 amount = 2;
  repeated Line lines = 3;
  repeated int64 codes = 4;
  map<string, string> notes = 5;
}
"""

PROTO2 = """syntax = "proto2";
message Order {
  enum Kind { BOOK = 1; TOY = 2; }
  required string id = 1;
  optional Kind kind = 2;
  optional group Place = 3 { required int32 shelf = 1; }
}
"""


def avro(definition: Any) -> Compiled:
    return load(check_definition(AVRO, json.dumps(definition)))


@pytest.fixture(scope="module")
def order() -> Compiled:
    return avro(ORDER)


@pytest.fixture(scope="module")
def proto() -> Compiled:
    return load(check_definition(PROTOCOL_BUFFER, PROTO))


@pytest.fixture(scope="module")
def proto2() -> Compiled:
    return load(check_definition(PROTOCOL_BUFFER, PROTO2))


def problem(compiled: Compiled, encoding: str, data: bytes) -> str:
    """ "" where it fits."""
    try:
        check_message(compiled, encoding, data)
    except DoesNotFit as found:
        return str(found)
    return ""


def in_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def in_avro(definition: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


# Definitions.


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("", "empty"),
        ("{", "not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ('{"type": "string", "type": "int"}', "'type' twice"),
        ("[" * 5000 + "]" * 5000, "deeper"),
        ('["int", "string"]', "one top-level type"),
        ("7", "a type is a name"),
        ("{}", "'type' is missing"),
        ('"strng"', "no type 'strng'"),
        (record({"name": "a", "type": "strng"}), "fields[0].type: there is no type 'strng'"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "fields[1]: the field 'a' is there twice"),
        (record({"name": "a"}), "fields[0]: 'type' is missing"),
        (record({"type": "int"}), "fields[0]: 'name' is missing"),
        (record({"name": "1a", "type": "int"}), "fields[0].name"),
        (record("a"), "fields[0]: a field is an object"),
        (record({"name": "a", "type": "int", "order": "up"}), "fields[0].order"),
        (record({"name": "a", "type": "int", "aliases": "b"}), "fields[0].aliases"),
        ({"type": "record", "name": "R"}, "'fields' is missing"),
        ({"type": "record", "name": "R", "fields": {}}, "fields: must be an array"),
        ({"type": "record", "fields": []}, "'name' is missing"),
        ({"type": "record", "name": "a b", "fields": []}, "name: a name is"),
        ({"type": "record", "name": "int", "fields": []}, "is there already"),
        ({"type": "record", "name": "R", "namespace": "a..b", "fields": []}, "namespace: a name is"),
        (record({"name": "a", "type": {"type": "array"}}), "fields[0].type: 'items' is missing"),
        (record({"name": "a", "type": {"type": "array", "items": "x"}}), "fields[0].type.items: there is no type"),
        (record({"name": "a", "type": {"type": "map", "values": 7}}), "fields[0].type.values: a type is"),
        (record({"name": "a", "type": ["int", ["null"]]}), "fields[0].type[1]: a union may not"),
        (record({"name": "a", "type": ["int", "int"]}), "fields[0].type[1]: the union has int twice"),
        (record({"name": "a", "type": []}), "fields[0].type: a union needs"),
        ({"type": "enum", "name": "E", "symbols": []}, "symbols: must be"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbols: a symbol is there twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B C"]}, "symbols[1]: a symbol is"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "default: must be"),
        ({"type": "fixed", "name": "F", "size": -1}, "size: must be"),
        ({"type": "fixed", "name": "F", "size": True}, "size: must be"),
        (record({"name": "a", "type": "int", "default": "x"}), "field 'a': the default does not fit: expected a whole"),
        (record({"name": "a", "type": ["null", "int"], "default": 7}), "field 'a': the default does not fit"),
        (
            record({"name": "a", "type": {"type": "array", "items": record(name="S")}, "default": [[]]}),
            "the default does not fit",
        ),
        ("x" * (LARGEST_BYTES + 1), "at most"),
    ],
)
def test_a_bad_avro_definition_is_refused_and_the_place_is_named(definition: Any, said: str) -> None:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    with pytest.raises(BadDefinition) as caught:
        check_definition(AVRO, text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "definition",
    [
        "string",
        {"type": "string"},
        ORDER,
        NODE,
        record({"name": "a", "type": {"type": "double"}, "default": 0}),
        record({"name": "a", "type": ["int", "null"], "default": 7, "doc": "x", "order": "ignore"}),
        record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}}),
        record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}}, {"name": "b", "type": {"type": "F"}}),
        record({"name": "a", "type": "R"}, namespace="some.where"),
        record(
            {"name": "a", "type": record({"name": "b", "type": ["int", "null"]}, name="S"), "default": {"b": 1}},
            {"name": "c", "type": {"type": "map", "values": "S"}, "default": {"k": {"b": 2}}},
        ),
    ],
)
def test_a_right_avro_definition_is_taken(definition: Any) -> None:
    assert avro(definition) is not None


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ('syntax = "proto3";\nmessage A { strng a = 1; }', 'line 2:13: "strng" is not defined'),
        ('syntax = "proto3";\nmessage A {', "line 2:12"),
        (
            'syntax = "proto3"; message A {} message B {}',
            "exactly one top-level message is needed, and there are 2: A, B",
        ),
        ('syntax = "proto3"; enum E { Z = 0; }', "exactly one top-level message"),
        ('syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A {}', "imports are not supported"),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', "line 1:20"),
        ('syntax = "proto3"; import "schema.proto"; message A {}', "line 1:20"),
        ('syntax = "proto3";' + "message A {" * 20_000 + "}" * 20_000, "nested messages"),
        ("\0\0\0", "line 1:1"),
    ],
)
def test_a_bad_protocol_buffers_definition_is_refused_and_the_line_is_named(definition: str, said: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        check_definition(PROTOCOL_BUFFER, definition)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "definition",
    [PROTO, PROTO2, 'edition = "2023"; package a.b; message A { string a = 1; } enum E { Z = 0; }'],
)
def test_a_right_protocol_buffers_definition_is_taken(definition: str) -> None:
    assert load(check_definition(PROTOCOL_BUFFER, definition)) is not None


def test_protoc_gets_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "_CHILD", "import time; time.sleep(60)")
    monkeypatch.setattr(protoc, "LONGEST_SECONDS", 0.3)
    with pytest.raises(BadDefinition, match=r"longer than 0\.3 s"):
        check_definition(PROTOCOL_BUFFER, PROTO)


def test_a_crash_of_protoc_is_the_definitions_fault_and_its_absence_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "_CHILD", "import os; os.abort()")
    with pytest.raises(BadDefinition, match="crashed"):
        check_definition(PROTOCOL_BUFFER, PROTO)
    monkeypatch.setattr(protoc, "_CHILD", "import no_such_module")
    with pytest.raises(RuntimeError, match="no_such_module"):
        check_definition(PROTOCOL_BUFFER, PROTO)


# Avro messages.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"note": {"string": "x"}}, ""),
        ({"lines": []}, ""),
        ({"amount": "1"}, "amount: expected a whole number (int), not a string"),
        ({"amount": 1.0}, "amount: expected a whole number"),
        ({"amount": True}, "amount: expected a whole number (int), not true"),
        ({"amount": 1 << 31}, "amount: is beyond the 32 bits of int"),
        ({"amount": -1 << 31}, ""),
        ({"id": None}, "id: expected a string, not null"),
        ({"note": "x"}, 'note: expected null or {"string": …}'),
        ({"note": {"null": None}}, "note: expected null or"),
        ({"note": {"string": 7}}, "note.string: expected a string"),
        ({"note": {"string": "a", "null": None}}, "note: expected null or"),
        ({"lines": {}}, "lines: expected an array, not an object"),
        ({"lines": [*GOOD["lines"], {"price": 2, "kind": "CAR"}]}, "lines[1].kind: 'CAR' is not a symbol of shop.Kind"),
        ({"lines": [{"price": 2}]}, "lines[0].kind: is missing"),
        ({"lines": [{"price": "2", "kind": "TOY"}]}, "lines[0].price: expected a number (double), not a string"),
        ({"more": 1}, "record shop.Order has no field 'more'"),
    ],
)
def test_avro_in_json(order: Compiled, change: dict[str, Any], said: str) -> None:
    found = problem(order, JSON, in_json({**GOOD, **change}))
    assert said in found
    assert bool(said) == bool(found)


def test_a_field_with_a_default_must_be_in_the_message_all_the_same(order: Compiled) -> None:
    without = {key: value for key, value in GOOD.items() if key != "note"}
    assert problem(order, JSON, in_json(without)) == "note: is missing"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (b"[]", "expected an object (record shop.Order), not an array"),
        (b'{"id": "a", "id": "b"}', "'id' twice"),
        (b'{"amount": NaN}', "NaN"),
        (b'{"amount": ' + b"1" * 5000 + b"}", "4300"),
        (b'{"id": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "deeper than 100"),
        (b"[" * 101 + b"]" * 101, "deeper than 100"),
        (b'{"id":' * 200 + b"1" + b"}" * 200, "deeper than 100"),
        (b"x" * 10_000_001, "at most"),
    ],
)
def test_text_that_no_schema_takes(order: Compiled, proto: Compiled, data: bytes, said: str) -> None:
    assert said in problem(order, JSON, data)
    if data not in (b"[]", b'{"amount": NaN}'):
        assert said in problem(proto, JSON, data)


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("bytes", "\x00\xff", True),
        ("bytes", "\u0100", False),
        ("bytes", 7, False),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", True),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", False),
        ("boolean", 1, False),
        ("boolean", False, True),
        ("null", None, True),
        ("null", 0, False),
        ("float", 1, True),
        ("float", True, False),
        ("long", 1 << 62, True),
        ("long", 1 << 63, False),
        ({"type": "map", "values": "int"}, {"a": 1}, True),
        ({"type": "map", "values": "int"}, {"a": "1"}, False),
        ({"type": "map", "values": "int"}, [], False),
    ],
)
def test_avro_types_in_json(kind: Any, value: Any, fits: bool) -> None:
    assert (problem(avro(kind), JSON, in_json(value)) == "") is fits


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("null", b"", ""),
        ("null", b"\0", "1 bytes are left"),
        ("boolean", b"\2", "expected a boolean"),
        ("boolean", b"", "needs 1 bytes"),
        ("int", b"\x01", ""),
        ("int", b"\x80", "no whole number"),
        ("int", b"\xfe\xff\xff\xff\x1f", "beyond the 32 bits"),
        ("long", b"\xff" * 9 + b"\x01", ""),
        ("long", b"\xff" * 9 + b"\x02", "no whole number"),
        ("long", b"\xff" * 11, "no whole number"),
        ("double", b"1234567", "needs 8 bytes at byte 0, and 7 are left"),
        ("string", b"\x02a", ""),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "negative length (-1)"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "needs 9223372036854775807 bytes"),
        ({"type": "fixed", "name": "F", "size": 2}, b"a", "needs 2 bytes"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "none at 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1", "none at -1"),
        ({"type": "array", "items": "int"}, b"\x04\x02\x04\0", ""),
        ({"type": "array", "items": "int"}, b"\x04\x02", "2 items at byte 1, and only 1 bytes are left"),
        ({"type": "array", "items": "int"}, b"\x02\x02\x02\x80", "[1]: has no whole number"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\0", ""),  # a block with its size
        ({"type": "array", "items": "int"}, b"\x03\x02\x02\x04\0", "ends at byte 4 and says that it ends at 3"),
        ({"type": "array", "items": "int"}, b"\x03\x7f\x02\x04\0", "a block of -64 bytes"),
        ({"type": "map", "values": "int"}, b"\x02\x02k\x02\0", ""),
        ({"type": "map", "values": "string"}, b"\x02\x02k\x02\xff\0", "['k']: expected a string"),
        ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\0", "[key 0]: expected a string"),
        (record({"name": "a", "type": ["null", "int"]}), b"\x04", "a: the union has 2 branches, and none at 2"),
    ],
)
def test_avro_in_binary(kind: Any, data: bytes, said: str) -> None:
    found = problem(avro(kind), BINARY, data)
    assert said in found
    assert bool(said) == bool(found)


def test_what_fastavro_writes_fits_and_what_is_cut_or_longer_does_not(order: Compiled) -> None:
    data = in_avro(ORDER, GOOD)
    assert problem(order, BINARY, data) == ""
    assert "1 bytes are left" in problem(order, BINARY, data + b"\0")
    for length in range(len(data)):
        assert problem(order, BINARY, data[:length])


def test_a_message_may_not_be_deeper_than_the_limit_however_few_bytes_say_so() -> None:
    node = avro(NODE)
    assert problem(node, BINARY, b"\2\2" * 99 + b"\2\0") == ""
    assert "deeper than 100" in problem(node, BINARY, b"\2\2" * 5_000_000)
    endless = avro(record({"name": "a", "type": "R"}, {"name": "b", "type": "R"}))
    assert "deeper than 100" in problem(endless, BINARY, b"")


def test_a_few_bytes_cannot_ask_for_endless_work() -> None:
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1 items
    started = time.monotonic()
    assert problem(avro({"type": "array", "items": "null"}), BINARY, huge + b"\0") == ""
    assert problem(avro({"type": "array", "items": record({"name": "n", "type": "null"})}), BINARY, huge + b"\0") == ""
    assert "items at byte" in problem(avro({"type": "array", "items": "int"}), BINARY, huge)
    # Each of 40 records has the one before it twice: 2^40 empty ones, in no bytes at all.
    empty: Any = record({"name": "n", "type": "null"}, name="R0")
    fields = [{"name": "first", "type": empty}]
    for number in range(1, 40):
        inner = f"R{number - 1}"
        twice = record({"name": "a", "type": inner}, {"name": "b", "type": inner}, name=f"R{number}")
        fields.append({"name": f"f{number}", "type": twice})
    assert problem(avro(record(*fields, name="Top")), BINARY, b"") == ""
    assert time.monotonic() - started < 5


def _union(kinds: list[Any]) -> list[Any]:
    """Without the same unnamed type twice."""
    chosen: dict[str, Any] = {}
    for index, kind in enumerate(kinds):
        name = kind if isinstance(kind, str) else kind["type"]
        chosen[f"{name}{index}" if name in ("record", "enum", "fixed") else name] = kind
    return list(chosen.values())


avro_definitions = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.lists(inner.filter(lambda kind: not isinstance(kind, list)), min_size=1, max_size=4).map(_union),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda kinds: {"type": "record", "fields": [{"name": f"f{i}", "type": k} for i, k in enumerate(kinds)]}
        ),
        st.just({"type": "enum", "symbols": ["A", "B"]}),
        st.just({"type": "fixed", "size": 3}),
    ),
    max_leaves=12,
)


def _with_names(kind: Any, numbers: Any) -> Any:
    if isinstance(kind, list):
        return [_with_names(item, numbers) for item in kind]
    if isinstance(kind, dict):
        named = {key: _with_names(value, numbers) for key, value in kind.items()}
        if named["type"] in ("record", "enum", "fixed"):
            named["name"] = f"T{next(numbers)}"
        return named
    return kind


@given(avro_definitions, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_fastavro_writes_for_any_definition_fits(kind: Any, chance: random.Random) -> None:
    definition = record({"name": "it", "type": _with_names(kind, itertools.count())}, name="Top")
    compiled = avro(definition)
    random.seed(chance.random())
    value = generate_one(fastavro.parse_schema(definition))
    assert problem(compiled, BINARY, in_avro(definition, value)) == ""
    text = io.StringIO()  # its JSON writer fails on a record without fields, so there is none here
    fastavro.json_writer(text, definition, [value])
    assert problem(compiled, JSON, text.getvalue().encode()) == ""


# Protocol Buffers messages.


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, ""),
        ({"id": "a", "amount": 7, "lines": [{"price": 1, "kind": "TOY"}], "codes": ["5"], "notes": {"k": "v"}}, ""),
        ([], "expected an object"),
        ({"amount": "x"}, "amount: "),
        ({"amount": 1 << 31}, "amount: "),
        ({"lines": [{"kind": "CAR"}]}, "kind"),
        ({"lines": [{"inner": {"price": "x"}}]}, "inner.price: "),
        ({"lines": 7}, "lines: "),
        ({"more": 1}, 'has no field named "more"'),
        ({"id": {}}, "id: "),
    ],
)
def test_protocol_buffers_in_json(proto: Compiled, value: Any, said: str) -> None:
    found = problem(proto, JSON, in_json(value))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ""),
        (b"\x0a\x01a\x10\x07\x1a\x04\x10\x01\x1a\x00\x22\x02\x01\x02\x20\x03\x2a\x04\x0a\x00\x12\x00", ""),
        (b"\x0a\x05a", "id: needs 5 bytes at byte 2, and 1 are left"),
        (b"\x0a\x01\xff", "id: expected a string, and it is not UTF-8"),
        (b"\x08\x01", "id: has wire type 0"),
        (b"\x52\x00", "Order has no field number 10"),
        (b"\x1a\x02\x20\x01", "lines: Order.Line has no field number 4"),
        (b"\x1a\x04\x1a\x02\x08\x01", "lines.inner.price: has wire type 0"),
        (b"\x1a\x02\x10\x80", "lines.kind: has no whole number"),
        (b"\x22\x02\x01\x80", "codes: has no whole number"),
        (b"\x10", "amount: has no whole number"),
        (b"\x13\x14", "amount: has wire type 3"),
        (b"\x80", "no whole number"),
        (b"\x09\x01", "id: has wire type 1"),
    ],
)
def test_protocol_buffers_in_binary(proto: Compiled, data: bytes, said: str) -> None:
    found = problem(proto, BINARY, data)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x0a\x00", ""),
        (b"\x0a\x00\x10\x02", ""),
        (b"\x0a\x00\x1b\x08\x01\x1c", ""),
        (b"\x0a\x00\x1b\x08\x01", "place: its end is missing"),
        (b"\x0a\x00\x1b\x1c", "place.shelf: is missing"),
        (b"\x10\x02", "id: is missing"),
        (b"\x0a\x00\x10\x09", "kind: Order.Kind has no value 9"),
    ],
)
def test_required_fields_groups_and_closed_enums_in_binary(proto2: Compiled, data: bytes, said: str) -> None:
    found = problem(proto2, BINARY, data)
    assert said in found
    assert bool(said) == bool(found)


def test_a_required_field_in_json(proto2: Compiled) -> None:
    assert problem(proto2, JSON, b'{"kind": "TOY"}') == "id: is missing"
    assert problem(proto2, JSON, b'{"id": "a"}') == ""


def test_a_deep_protocol_buffers_message_is_refused(proto: Compiled) -> None:
    data = b""
    for _ in range(300):
        data = b"\x1a" + _varint(len(data)) + data
    assert "deeper than 100" in problem(proto, BINARY, data)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


# Hostile bytes: whatever they are, the answer is DoesNotFit or nothing.

pieces = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from(
            [b"{", b"}", b"[", b"]", b'"id"', b":", b",", b'"\\ud83d"', b"1e999", b"null", b'{"id":', b"-0"]
        ),
        max_size=30,
    ).map(b"".join),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["id", "amount", "note", "lines", "kind", "string", "notes", "codes"]), inner
            )
        ),
        max_leaves=10,
    ).map(in_json),
)


@given(data=pieces, encoding=st.sampled_from([JSON, BINARY]))
@settings(max_examples=400, deadline=None)
def test_hostile_bytes_never_raise_anything_else(
    order: Compiled, proto: Compiled, proto2: Compiled, data: bytes, encoding: str
) -> None:
    for compiled in (order, proto, proto2):
        assert "\n" not in problem(compiled, encoding, data)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_right_message_with_a_few_bytes_changed_never_raises_anything_else(
    order: Compiled, proto: Compiled, data: st.DataObject
) -> None:
    message = bytearray(
        data.draw(st.sampled_from([in_avro(ORDER, GOOD), b"\x0a\x01a\x1a\x06\x10\x01\x1a\x02\x10\x01"]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    problem(order, BINARY, bytes(message))
    problem(proto, BINARY, bytes(message))


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(["{", "}", "[", "]", ":", ",", '"type"', '"int"', '"record"', '"fields"', '"name"']),
        max_size=20,
    ).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_hostile_avro_definitions_never_raise_anything_else(text: str) -> None:
    taken_or_refused(text)


def taken_or_refused(text: str) -> None:
    try:
        check_definition(AVRO, text)
    except BadDefinition:
        pass


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["record", "array", "int", "map", "enum", "fixed", "R", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "namespace"]),
            inner,
        )
    ),
    max_leaves=15,
)


@given(json_values)
@settings(max_examples=400, deadline=None)
def test_strange_avro_definitions_never_raise_anything_else(value: Any) -> None:
    taken_or_refused(json.dumps(value))


# The registry.


class Ids:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        return f"{next(self._numbers):08x}"


@pytest.fixture
def log() -> MemoryMessageLog:
    return MemoryMessageLog()


@pytest.fixture
def schemas(log: MemoryMessageLog, clock: ManualClock) -> SchemaRegistry:
    return SchemaRegistry({}, log.commit, clock, new_id=Ids())


async def reopened(log: MemoryMessageLog) -> SchemaRegistry:
    return SchemaRegistry((await log.load()).records, log.commit, ManualClock())


def fields(*names: str) -> str:
    """An Avro definition whose fields have defaults, so that any two of them are compatible."""
    return json.dumps(record(*({"name": name, "type": "int", "default": 0} for name in names)))


def messages(*data: bytes) -> list[Any]:
    return [PubsubMessage(data=item) for item in data]


async def test_a_schema_is_created_read_and_still_there_after_a_restart(
    schemas: SchemaRegistry, log: MemoryMessageLog, clock: ManualClock
) -> None:
    created = await schemas.create(NAME, AVRO, fields("a"))
    assert created.newest.id == "00000001"
    assert created.newest.created_ns == clock.now_ns()
    assert schemas.get(NAME) == created
    again = await reopened(log)
    assert again.get(NAME) == created
    assert again.list_schemas("projects/local") == [created]
    assert again.list_schemas("projects/loca") == []


async def test_protocol_buffers_need_no_protoc_after_a_restart(
    schemas: SchemaRegistry, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schemas.create(NAME, PROTOCOL_BUFFER, PROTO)
    monkeypatch.setattr(protoc, "_CHILD", "import no_such_module")
    again = await reopened(log)
    await again.validate_message(NAME, BINARY, b"\x0a\x01a")
    with pytest.raises(BadInput, match="message: does not fit the schema: id: "):
        await again.validate_message(NAME, BINARY, b"\x0a\x05a")


async def test_revision_ids_are_eight_hexadecimal_digits_and_never_the_same(
    log: MemoryMessageLog, clock: ManualClock
) -> None:
    created = await SchemaRegistry({}, log.commit, clock).create(NAME, AVRO, fields("a"))
    assert len(created.newest.id) == 8
    assert int(created.newest.id, 16) >= 0
    ids = iter(["aaaaaaaa", "aaaaaaaa", "bbbbbbbb", "aaaaaaaa", "cccccccc"])
    registry = SchemaRegistry({}, log.commit, clock, new_id=lambda: next(ids))
    await registry.create(NAME, AVRO, fields("a"))
    assert (await registry.commit(NAME, AVRO, fields("b"))).newest.id == "bbbbbbbb"
    await registry.delete_revision(NAME, "aaaaaaaa")
    assert (await registry.commit(NAME, AVRO, fields("c"))).newest.id == "cccccccc"


async def test_revisions(schemas: SchemaRegistry, log: MemoryMessageLog, clock: ManualClock) -> None:
    await schemas.create(NAME, AVRO, fields("a"))
    clock.advance(5)
    second = await schemas.commit(NAME, AVRO, fields("a", "b"))
    assert [revision.id for revision in second.revisions] == ["00000001", "00000002"]
    third = await schemas.rollback(NAME, "00000001")
    assert third.newest.id == "00000003"
    assert third.newest.definition.text == fields("a")
    for registry_ in (schemas, await reopened(log)):
        assert registry_.get(NAME).newest.id == "00000003"
        assert registry_.get(f"{NAME}@00000002").newest.definition.text == fields("a", "b")
        assert [item.newest.id for item in registry_.list_revisions(NAME)] == ["00000003", "00000002", "00000001"]
    left = await schemas.delete_revision(NAME, "00000003")
    assert left.newest.id == "00000002"
    with pytest.raises(NotFound, match="00000003"):
        schemas.get(f"{NAME}@00000003")
    await schemas.delete_revision(NAME, "00000002")
    with pytest.raises(FailedPrecondition, match="only revision"):
        await schemas.delete_revision(NAME, "00000001")


async def test_a_schema_has_at_most_twenty_revisions(schemas: SchemaRegistry) -> None:
    await schemas.create(NAME, AVRO, fields("a"))
    for _ in range(19):
        await schemas.rollback(NAME, "00000001")
    for change in (schemas.rollback(NAME, "00000001"), schemas.commit(NAME, AVRO, fields("b"))):
        with pytest.raises(FailedPrecondition, match="20 revisions"):
            await change
    await schemas.delete_revision(NAME, "00000001")
    await schemas.commit(NAME, AVRO, fields("b"))
    assert len(schemas.list_revisions(NAME)) == 20


Call = Callable[[SchemaRegistry], Any]


@pytest.mark.parametrize(
    ("expected", "said", "call"),
    [
        (BadInput, "schema_id", lambda r: r.create("projects/local/schemas/1", AVRO, fields("a"))),
        (BadInput, "schema.type", lambda r: r.create(f"{NAME}2", "XML", fields("a"))),
        (
            BadInput,
            "schema.definition: fields[0].type",
            lambda r: r.create(f"{NAME}2", AVRO, fields("a").replace("int", "x")),
        ),
        (AlreadyExists, NAME, lambda r: r.create(NAME, AVRO, fields("a"))),
        (NotFound, "order2", lambda r: r.commit(f"{NAME}2", AVRO, fields("a"))),
        (BadInput, "schema.type: is PROTOCOL_BUFFER", lambda r: r.commit(NAME, PROTOCOL_BUFFER, PROTO)),
        (BadInput, "name", lambda r: r.commit(f"{NAME}@00000001", AVRO, fields("a"))),
        (BadInput, "schema.definition", lambda r: r.validate_schema(AVRO, "{")),
        (NotFound, "deadbeef", lambda r: r.rollback(NAME, "deadbeef")),
        (NotFound, "deadbeef", lambda r: r.delete_revision(NAME, "deadbeef")),
        (NotFound, "order2", lambda r: r.delete(f"{NAME}2")),
        (BadInput, "encoding", lambda r: r.validate_message_with(AVRO, fields("a"), "", b"{}")),
        (
            BadInput,
            "message: does not fit the schema: a: is missing",
            lambda r: r.validate_message_with(AVRO, fields("a"), JSON, b"{}"),
        ),
    ],
)
async def test_refusals(schemas: SchemaRegistry, expected: type[HoldfastError], said: str, call: Call) -> None:
    before = await schemas.create(NAME, AVRO, fields("a"))
    with pytest.raises(expected) as caught:
        await call(schemas)
    assert said in str(caught.value)
    assert schemas.list_schemas("projects/local") == [before]


async def test_a_commit_that_fails_changes_nothing(clock: ManualClock) -> None:
    working = True

    async def commit(changes: Sequence[Change]) -> None:
        if not working:
            raise StorageUnavailable("the disk is full")

    schemas = SchemaRegistry({}, commit, clock, new_id=Ids())
    before = await schemas.create(NAME, AVRO, fields("a"))
    working = False
    for change in (
        schemas.create(f"{NAME}2", AVRO, fields("a")),
        schemas.commit(NAME, AVRO, fields("b")),
        schemas.delete(NAME),
    ):
        with pytest.raises(StorageUnavailable):
            await change
    assert schemas.list_schemas("projects/local") == [before]


async def test_two_at_once_create_one_schema(schemas: SchemaRegistry) -> None:
    results = await asyncio.gather(*(schemas.create(NAME, AVRO, fields("a")) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, AlreadyExists) for result in results) == 4
    await asyncio.gather(*(schemas.commit(NAME, AVRO, fields("a")) for _ in range(5)))
    assert [item.newest.number for item in schemas.list_revisions(NAME)] == [6, 5, 4, 3, 2, 1]


async def test_a_damaged_record_is_refused_loudly(clock: ManualClock) -> None:
    with pytest.raises(CorruptData, match=NAME):
        SchemaRegistry({("schema", NAME): b"{}"}, MemoryMessageLog().commit, clock)
    SchemaRegistry({("snapshot", NAME): b"{}"}, MemoryMessageLog().commit, clock)


async def test_deleting_goes_through_the_brokers_own_commit(clock: ManualClock) -> None:
    committed: list[tuple[str, Sequence[Change]]] = []

    async def commit(changes: Sequence[Change]) -> None:
        assert all(isinstance(change, PutRecord) for change in changes)

    async def commit_deletion(name: str, changes: Sequence[Change]) -> None:
        committed.append((name, changes))

    schemas = SchemaRegistry({}, commit, clock, commit_deletion)
    await schemas.create(NAME, AVRO, fields("a"))
    await schemas.delete(NAME)
    assert committed == [(NAME, [DeleteRecord("schema", NAME)])]
    with pytest.raises(NotFound):
        schemas.get(NAME)


# Compatibility of revisions.


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (record(field("a", "int")), record(field("a", "int")), ""),
        (record(field("a", "int")), record(field("a", "int"), field("b", "int", default=0)), ""),
        (
            record(field("a", "int")),
            record(field("a", "int"), field("b", "int")),
            "new revision cannot read the older one's messages: b has no default",
        ),
        (record(field("a", "int")), record(), "older revision cannot read the new one's messages: a has no default"),
        (record(field("a", "int")), record(field("a", "string")), "a of type string is not compatible with type int"),
        (
            record(field("a", "int")),
            record(field("a", "long")),
            "older revision cannot read the new one's messages: a of type int",
        ),
        (record(field("a", "string")), record(field("a", "bytes")), ""),
        (
            record(field("a", "int")),
            record(field("a", ["int", "null"])),
            "a of type int is not compatible with type null",
        ),
        (record(field("a", ["int", "null"])), record(field("a", ["null", "int"])), ""),
        (
            record(field("a", ["int", "null"])),
            record(field("a", ["null", "string"])),
            "a: no branch of the union reads int",
        ),
        (record(field("a", enum("X"))), record(field("a", enum("X", "Y"))), "enum E has no symbol Y"),
        (record(field("a", enum("X", default="X"))), record(field("a", enum("X", "Y", default="X"))), ""),
        (
            record(field("a", {"type": "fixed", "name": "F", "size": 2})),
            record(field("a", {"type": "fixed", "name": "F", "size": 3})),
            "a of type F",
        ),
        (
            record(field("a", {"type": "array", "items": {"type": "map", "values": "int"}})),
            record(field("a", {"type": "array", "items": {"type": "map", "values": "string"}})),
            "a[]{} of type string",
        ),
        (record(name="A"), record(name="B"), "the schema of type B is not compatible with type A"),
        (record(name="x.A"), record(name="y.A"), ""),
        (record(field("a", "int")), record(field("b", "int", aliases=["a"])), "older revision cannot read"),
        (NODE, NODE, ""),
    ],
)
async def test_an_avro_revision_must_read_the_others_and_be_read_by_them(
    schemas: SchemaRegistry, old: Any, new: Any, said: str
) -> None:
    await schemas.create(NAME, AVRO, json.dumps(old))
    if not said:
        await schemas.commit(NAME, AVRO, json.dumps(new))
        return
    with pytest.raises(BadInput, match=r"schema\.definition: is incompatible with revision 00000001") as caught:
        await schemas.commit(NAME, AVRO, json.dumps(new))
    assert said in str(caught.value)
    assert len(schemas.list_revisions(NAME)) == 1


def in_proto(body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; message A {{ {body} }}'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (in_proto("int32 a = 1;"), in_proto("int32 a = 1; optional string b = 2;"), ""),
        (in_proto("int32 a = 1; string b = 2;"), in_proto("int32 a = 1;"), ""),
        (in_proto("int64 a = 1;"), in_proto("string a = 1;"), "a of type string is not compatible with type int64"),
        (in_proto("int32 a = 1;"), in_proto("repeated int32 a = 1;"), "a of type repeated int32"),
        (in_proto("int32 a = 1;"), in_proto("int32 b = 1;"), "field number 1 is called b and was called a"),
        (in_proto("int32 a = 1;"), in_proto("int32 a = 2;"), "a has another number than before"),
        (
            in_proto("optional int32 a = 1;", "proto2"),
            in_proto("optional int32 a = 1; required int32 b = 2;", "proto2"),
            "b is required",
        ),
        (in_proto("required int32 a = 1;", "proto2"), in_proto("", "proto2"), "a is required"),
        (
            in_proto("message B { int32 x = 1; A a = 2; } B b = 1;"),
            in_proto("message B { string x = 1; A a = 2; } B b = 1;"),
            "x of type string is not compatible with type int32",
        ),
        (
            in_proto("enum E { Z = 0; Y = 1; } E e = 1;"),
            in_proto("enum E { Z = 0; Y = 2; } E e = 1;"),
            "E.Y is 2 and was 1",
        ),
    ],
)
async def test_a_protocol_buffers_revision_may_not_change_a_field(
    schemas: SchemaRegistry, old: str, new: str, said: str
) -> None:
    await schemas.create(NAME, PROTOCOL_BUFFER, old)
    if not said:
        await schemas.commit(NAME, PROTOCOL_BUFFER, new)
        return
    with pytest.raises(BadInput, match=r"schema\.definition: is incompatible with revision 00000001") as caught:
        await schemas.commit(NAME, PROTOCOL_BUFFER, new)
    assert said in str(caught.value)


async def test_a_revision_must_agree_with_all_that_are_there(schemas: SchemaRegistry) -> None:
    await schemas.create(NAME, PROTOCOL_BUFFER, in_proto("int32 a = 1; string b = 2;"))
    await schemas.commit(NAME, PROTOCOL_BUFFER, in_proto("int32 a = 1;"))
    with pytest.raises(BadInput, match="incompatible with revision 00000001"):
        await schemas.commit(NAME, PROTOCOL_BUFFER, in_proto("int32 a = 1; int64 b = 2;"))
    await schemas.delete_revision(NAME, "00000001")
    await schemas.commit(NAME, PROTOCOL_BUFFER, in_proto("int32 a = 1; int64 b = 2;"))


async def test_a_chain_of_thousands_of_types_is_compared(schemas: SchemaRegistry) -> None:
    chain: list[Any] = [field("f0", record(name="R0"))]
    chain += [field(f"f{n}", record(field("x", f"R{n - 1}"), name=f"R{n}")) for n in range(1, 2500)]
    text = json.dumps(record(*chain, name="Top"))
    await schemas.create(NAME, AVRO, text)
    await schemas.commit(NAME, AVRO, text)


async def test_unions_of_thousands_of_types_are_compared_in_time(schemas: SchemaRegistry) -> None:
    branches = [{"type": "fixed", "name": f"n{size}.F", "size": size} for size in range(5000)]
    await schemas.create(NAME, AVRO, json.dumps(record(field("a", branches))))
    started = time.monotonic()
    await schemas.commit(NAME, AVRO, json.dumps(record(field("a", branches[::-1]))))
    assert time.monotonic() - started < 5


# What a publish is held to.


async def three_revisions(schemas: SchemaRegistry) -> None:
    await schemas.create(NAME, AVRO, fields("a"))
    await schemas.commit(NAME, AVRO, fields("a", "b"))
    await schemas.commit(NAME, AVRO, fields("a", "b", "c"))


A, AB, ABC = b'{"a": 1}', b'{"a": 1, "b": 2}', b'{"a": 1, "b": 2, "c": 3}'


async def test_each_message_gets_the_newest_revision_that_it_fits(schemas: SchemaRegistry) -> None:
    await three_revisions(schemas)
    found = schemas.check_messages(SchemaSettings(NAME), messages(A, ABC, AB, A))
    assert found == ["00000001", "00000003", "00000002", "00000001"]


async def test_the_range_of_revisions_bounds_what_is_accepted(schemas: SchemaRegistry) -> None:
    await three_revisions(schemas)
    middle = SchemaSettings(NAME, JSON, "00000002", "00000002")
    schemas.check_settings(middle)
    assert schemas.check_messages(middle, messages(AB)) == ["00000002"]
    for refused in (A, ABC):
        with pytest.raises(BadInput, match=r"messages\[1\]\.data"):
            schemas.check_messages(middle, messages(AB, refused))
    assert schemas.check_messages(SchemaSettings(NAME, JSON, "00000002"), messages(ABC)) == ["00000003"]
    assert schemas.check_messages(SchemaSettings(NAME, JSON, "", "00000002"), messages(A)) == ["00000001"]


async def test_a_deleted_bound_still_bounds(schemas: SchemaRegistry, log: MemoryMessageLog) -> None:
    await three_revisions(schemas)
    await schemas.delete_revision(NAME, "00000002")
    again = await reopened(log)
    from_second = SchemaSettings(NAME, JSON, "00000002")
    assert again.check_messages(from_second, messages(ABC)) == ["00000003"]
    with pytest.raises(BadInput, match=r"messages\[0\]\.data"):
        again.check_messages(from_second, messages(A))
    with pytest.raises(BadInput, match="none of the revisions"):
        again.check_messages(SchemaSettings(NAME, JSON, "00000002", "00000002"), messages(A))


async def test_a_refused_publish_names_the_message_the_field_and_the_revision(schemas: SchemaRegistry) -> None:
    await three_revisions(schemas)
    with pytest.raises(BadInput) as caught:
        schemas.check_messages(SchemaSettings(NAME), messages(ABC, b'{"a": "x", "b": 2, "c": 3}'))
    assert caught.value.field == "messages[1].data"
    assert caught.value.why == (
        f"does not fit schema {NAME}, revision 00000003, nor the 2 older ones: "
        "a: expected a whole number (int), not a string"
    )


@pytest.mark.parametrize("schema", [NAME, DELETED_SCHEMA])
async def test_nothing_is_published_once_the_schema_is_deleted(schemas: SchemaRegistry, schema: str) -> None:
    await schemas.create(NAME, AVRO, fields("a"))
    await schemas.delete(NAME)
    with pytest.raises(BadInput, match="topic: its schema was deleted"):
        schemas.check_messages(SchemaSettings(schema), messages(A))


async def test_settings_that_a_topic_may_have(schemas: SchemaRegistry) -> None:
    await three_revisions(schemas)
    schemas.check_settings(SchemaSettings(NAME, BINARY, "00000001", "00000003"))
    with pytest.raises(NotFound, match="order2"):
        schemas.check_settings(SchemaSettings(f"{NAME}2"))
    with pytest.raises(NotFound, match="deadbeef"):
        schemas.check_settings(SchemaSettings(NAME, JSON, "deadbeef"))
    for bad, where in (
        (SchemaSettings("order"), "schema_settings.schema"),
        (SchemaSettings(DELETED_SCHEMA), "schema_settings.schema"),
        (SchemaSettings(NAME, "XML"), "schema_settings.encoding"),
        (SchemaSettings(NAME, JSON, "00000003", "00000001"), "schema_settings.first_revision_id"),
    ):
        with pytest.raises(BadInput) as caught:
            schemas.check_settings(bad)
        assert caught.value.field == where


async def test_compiled_definitions_are_kept_and_not_all_of_them(
    schemas: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def counting(definition: Any) -> Compiled:
        loaded.append(definition.text)
        return load(definition)

    monkeypatch.setattr(registry, "load", counting)
    await schemas.create(NAME, AVRO, fields("a"))
    for _ in range(3):
        schemas.check_messages(SchemaSettings(NAME), messages(A, A))
    assert loaded == [fields("a")]
    await schemas.create(f"{NAME}2", AVRO, fields("b"))
    await schemas.create(f"{NAME}3", AVRO, fields("c"))
    monkeypatch.setattr(registry, "CACHE_CHARACTERS", 2 * len(fields("a")))  # room for two
    await schemas.validate_message(f"{NAME}2", JSON, b'{"b": 1}')
    schemas.check_messages(SchemaSettings(NAME), messages(A))  # used last, so the other one goes
    await schemas.validate_message(f"{NAME}3", JSON, b'{"c": 1}')
    schemas.check_messages(SchemaSettings(NAME), messages(A))
    assert loaded == [fields("a"), fields("b"), fields("c")]
    await schemas.validate_message(f"{NAME}2", JSON, b'{"b": 1}')
    assert loaded == [fields("a"), fields("b"), fields("c"), fields("b")]


async def test_large_messages_are_checked_without_holding_up_the_rest(
    schemas: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noting(encoding: str, data: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return decoded(encoding, data)

    monkeypatch.setattr(registry, "decoded", noting)
    await schemas.create(NAME, AVRO, json.dumps("string"))
    here = threading.current_thread().name
    assert await schemas.check_publish(SchemaSettings(NAME), messages(b'"small"')) == ["00000001"]
    assert threads == [here]
    large = in_json("x" * 60_000)
    assert await schemas.check_publish(SchemaSettings(NAME), messages(large, large)) == ["00000001"] * 2
    assert here not in threads[1:]
    with pytest.raises(BadInput, match=r"messages\[1\]\.data"):
        await schemas.check_publish(SchemaSettings(NAME), messages(large, large[:-1]))


def test_the_attributes_that_a_message_carries() -> None:
    assert schema_attributes(SchemaSettings(NAME, BINARY), "0a1b2c3d") == {
        "googclient_schemaencoding": "BINARY",
        "googclient_schemaname": NAME,
        "googclient_schemarevisionid": "0a1b2c3d",
    }


def test_settings_on_the_wire() -> None:
    kept = SchemaSettings(NAME, BINARY, "00000001", "00000002")
    assert settings_from_pb(settings_to_pb(kept)) == kept
    assert settings_from_pb(PbSchemaSettings(schema=NAME)) == SchemaSettings(NAME, JSON)
    assert settings_from_pb(PbSchemaSettings(schema=NAME, encoding=9)).encoding == ""


def test_nothing_of_avro_or_protoc_is_loaded_before_it_is_needed() -> None:
    import subprocess
    import sys

    code = (
        "import sys, holdfast.api.grpc.schemas; "
        "print([name for name in sys.modules if name.startswith(('fastavro', 'grpc_tools.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
