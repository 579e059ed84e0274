"""JSON Merge Patch: all examples of RFC 7396's appendix."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.deadletter.edits.difference import differences
from holdfast.deadletter.edits.merge_patch import apply_merge, touched_by_merge

APPENDIX = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(("document", "patch", "wanted"), APPENDIX)
def test_the_appendix(document: str, patch: str, wanted: str) -> None:
    before = json.loads(document)
    assert apply_merge(before, json.loads(patch)) == json.loads(wanted)
    assert before == json.loads(document)


@given(json_values, json_values)
def test_it_changes_nothing_but_what_it_says_it_touches(document: object, patch: object) -> None:
    touched = list(touched_by_merge(patch))
    for difference in differences(document, apply_merge(document, patch)):
        assert any(_overlap(path, difference.path) for path in touched), difference


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    depth = min(len(one), len(other))
    return one[:depth] == other[:depth]
