"""JSON Patch: the examples of RFC 6902's appendix, and what it must refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.deadletter.edits.json_patch import DoesNotApply, apply_patch, parse_patch
from holdfast.errors import BadInput
from holdfast.model.exact_json import dump_exact_json, parse_exact_json


def patched(document: str, patch: str) -> Any:
    operations = parse_patch("patch", parse_exact_json(patch.encode()))
    return json.loads(dump_exact_json(apply_patch(parse_exact_json(document.encode()), operations)))


# Appendix A, by its numbers.
APPENDIX = {
    "A.1 an object member": (
        '{"foo": "bar"}',
        '[{"op": "add", "path": "/baz", "value": "qux"}]',
        '{"baz": "qux", "foo": "bar"}',
    ),
    "A.2 an array element": (
        '{"foo": ["bar", "baz"]}',
        '[{"op": "add", "path": "/foo/1", "value": "qux"}]',
        '{"foo": ["bar", "qux", "baz"]}',
    ),
    "A.3 removes a member": (
        '{"baz": "qux", "foo": "bar"}',
        '[{"op": "remove", "path": "/baz"}]',
        '{"foo": "bar"}',
    ),
    "A.4 removes an element": (
        '{"foo": ["bar", "qux", "baz"]}',
        '[{"op": "remove", "path": "/foo/1"}]',
        '{"foo": ["bar", "baz"]}',
    ),
    "A.5 replaces": (
        '{"baz": "qux", "foo": "bar"}',
        '[{"op": "replace", "path": "/baz", "value": "boo"}]',
        '{"baz": "boo", "foo": "bar"}',
    ),
    "A.6 moves a value": (
        '{"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}',
        '[{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]',
        '{"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}',
    ),
    "A.7 moves an element": (
        '{"foo": ["all", "grass", "cows", "eat"]}',
        '[{"op": "move", "from": "/foo/1", "path": "/foo/3"}]',
        '{"foo": ["all", "cows", "eat", "grass"]}',
    ),
    "A.8 a test that passes": (
        '{"baz": "qux", "foo": ["a", 2, "c"]}',
        '[{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]',
        '{"baz": "qux", "foo": ["a", 2, "c"]}',
    ),
    "A.10 a nested object": (
        '{"foo": "bar"}',
        '[{"op": "add", "path": "/child", "value": {"grandchild": {}}}]',
        '{"foo": "bar", "child": {"grandchild": {}}}',
    ),
    "A.11 ignores unknown members": (
        '{"foo": "bar"}',
        '[{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]',
        '{"foo": "bar", "baz": "qux"}',
    ),
    "A.14 escapes": (
        '{"/": 9, "~1": 10}',
        '[{"op": "test", "path": "/~01", "value": 10}]',
        '{"/": 9, "~1": 10}',
    ),
    "A.16 adds an array": (
        '{"foo": ["bar"]}',
        '[{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]',
        '{"foo": ["bar", ["abc", "def"]]}',
    ),
}

REFUSED_BY_APPENDIX = {
    "A.9 a test that fails": ('{"baz": "qux"}', '[{"op": "test", "path": "/baz", "value": "bar"}]'),
    "A.12 no target": ('{"foo": "bar"}', '[{"op": "add", "path": "/baz/bat", "value": "qux"}]'),
    "A.15 text is not a number": ('{"/": 9, "~1": 10}', '[{"op": "test", "path": "/~01", "value": "10"}]'),
}


@pytest.mark.parametrize(("document", "patch", "wanted"), APPENDIX.values(), ids=APPENDIX)
def test_the_appendix_applies(document: str, patch: str, wanted: str) -> None:
    assert patched(document, patch) == json.loads(wanted)


@pytest.mark.parametrize(("document", "patch"), REFUSED_BY_APPENDIX.values(), ids=REFUSED_BY_APPENDIX)
def test_the_appendix_does_not_apply(document: str, patch: str) -> None:
    with pytest.raises(DoesNotApply):
        patched(document, patch)


def test_an_operation_given_twice_over_is_refused() -> None:
    """A.13: a patch whose JSON two readers understand differently."""
    with pytest.raises(ValueError, match="twice"):
        patched('{"foo": "bar"}', '[{"op": "add", "path": "/baz", "value": "qux", "op": "remove"}]')


DOES_NOT_APPLY = {
    "an index with a leading zero": ("[1, 2]", '[{"op": "replace", "path": "/00", "value": 1}]'),
    "a negative index": ("[1, 2]", '[{"op": "remove", "path": "/-1"}]'),
    "one beyond the end": ("[1, 2]", '[{"op": "add", "path": "/3", "value": 1}]'),
    "digits of another script": ("[1, 2]", '[{"op": "replace", "path": "/\\u0661", "value": 1}]'),
    "the place after the end, to remove": ("[1, 2]", '[{"op": "remove", "path": "/-"}]'),
    "into a text": ('"text"', '[{"op": "add", "path": "/0", "value": 1}]'),
    "replaces what is not there": ("{}", '[{"op": "replace", "path": "/a", "value": 1}]'),
    "a huge index": ("[1]", '[{"op": "replace", "path": "/99999999999999999999", "value": 1}]'),
    "tests what is not there for null": ("{}", '[{"op": "test", "path": "/a", "value": null}]'),
    "true is not 1": ('{"a": true}', '[{"op": "test", "path": "/a", "value": 1}]'),
    "a class of Python": ("{}", '[{"op": "add", "path": "/__class__/x", "value": 1}]'),
    "the end of an array that was moved from": ("[1, 2]", '[{"op": "move", "from": "/0", "path": "/2"}]'),
}


@pytest.mark.parametrize(("document", "patch"), DOES_NOT_APPLY.values(), ids=DOES_NOT_APPLY)
def test_what_does_not_apply(document: str, patch: str) -> None:
    with pytest.raises(DoesNotApply):
        patched(document, patch)


BAD = {
    "no list": ('{"op": "remove", "path": "/a"}', "patch"),
    "no object": ("[7]", "patch[0]"),
    "no op": ('[{"path": "/a"}]', "patch[0].op"),
    "an unknown op": ('[{"op": "remove", "path": "/a"}, {"op": "Remove", "path": "/a"}]', "patch[1].op"),
    "no path": ('[{"op": "remove"}]', "patch[0].path"),
    "no pointer": ('[{"op": "remove", "path": "a"}]', "patch[0].path"),
    "a bad escape": ('[{"op": "remove", "path": "/a~2"}]', "patch[0].path"),
    "no value": ('[{"op": "add", "path": "/a"}]', "patch[0].value"),
    "no from": ('[{"op": "copy", "path": "/a"}]', "patch[0].from"),
    "into itself": ('[{"op": "move", "from": "/a", "path": "/a/b"}]', "patch[0].path"),
}


@pytest.mark.parametrize(("patch", "field"), BAD.values(), ids=BAD)
def test_a_bad_patch_is_refused_by_its_place(patch: str, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        patched("{}", patch)
    assert caught.value.field == field


def test_all_operations_or_none() -> None:
    document = parse_exact_json(b'{"a": {"b": [1]}}')
    operations = parse_patch(
        "patch",
        parse_exact_json(
            b'[{"op": "add", "path": "/a/b/-", "value": 2}, {"op": "remove", "path": "/a/c"}]',
        ),
    )
    with pytest.raises(DoesNotApply, match=r"operation 1 \(remove\): there is no /a/c"):
        apply_patch(document, operations)
    assert dump_exact_json(document) == '{"a":{"b":[1]}}'


def test_a_copy_is_not_shared() -> None:
    patch = '[{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x", "value": 1}]'
    assert patched('{"a": {}}', patch) == {"a": {}, "b": {"x": 1}}


def test_a_value_used_twice_is_not_shared() -> None:
    operations = parse_patch("patch", [{"op": "add", "path": "/a", "value": {}}])
    first = apply_patch({}, operations)
    first["a"]["x"] = 1
    assert apply_patch({}, operations) == {"a": {}}


def test_numbers_are_tested_by_value_and_kept_by_text() -> None:
    operations = parse_patch("patch", parse_exact_json(b'[{"op": "test", "path": "/a", "value": 1.0}]'))
    document = parse_exact_json(b'{"a": 10e-1, "b": 12345678901234567890.10}')
    assert dump_exact_json(apply_patch(document, operations)) == '{"a":10e-1,"b":12345678901234567890.10}'


def test_copies_upon_copies_are_bounded() -> None:
    """Sixty of them would make more than there is memory for."""
    doubling = [{"op": "copy", "from": "", "path": "/a"}, {"op": "copy", "from": "/a", "path": "/b"}] * 30
    with pytest.raises(DoesNotApply, match=r"nested deeper|would be copied"):
        apply_patch({"x": [0] * 10}, parse_patch("patch", doubling))


def test_a_document_does_not_nest_beyond_what_can_be_walked() -> None:
    deeper = [{"op": "copy", "from": "/a", "path": "/a" * length} for length in range(2, 80)]
    with pytest.raises(DoesNotApply, match="nested deeper"):
        apply_patch({"a": {}}, parse_patch("patch", deeper))
