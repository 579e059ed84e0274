"""Redaction: what rules hide, in content and in text, and what may not be asked or edited without the right."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest

from holdfast.deadletter.edits.document import document_of
from holdfast.deadletter.presentation import content_to_json
from holdfast.deadletter.quotes import HIDDEN
from holdfast.deadletter.redaction import Redaction, redaction_from
from holdfast.deadletter.selection import Selection
from holdfast.errors import PermissionDenied, SettingError
from holdfast.model.dead_letter_attributes import bounded_value
from holdfast.model.failed_message import Content, bounded_error_details
from holdfast.settings import DeskSettings, Texts

CARD = "4111-1111-1111-1111"


def content(payload: Any = None, attributes: dict[str, str] | None = None, key: str = "") -> Content:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Content(data, attributes or {}, key)


def shown(payload: Any, *rules: str) -> Any:
    return content_to_json(content(payload), payload=True, redaction=Redaction(rules)).get("json")


# What is hidden.

PATHS = {
    "a path": ("payload:card.number", {"card": {"number": CARD, "kind": "x"}}, ["/json/card/number"]),
    "any one step": ("payload:*.email", {"a": {"email": 1}, "b": {"c": {"email": 2}}}, ["/json/a/email"]),
    "any number of steps": (
        "payload:**.email",
        {"email": 1, "b": {"c": [{"email": 2}]}},
        ["/json/b/c/0/email", "/json/email"],
    ),
    "an item": ("payload:lines.0.sku", {"lines": [{"sku": 1}, {"sku": 2}]}, ["/json/lines/0/sku"]),
    "all items": (
        "payload:lines.*.sku",
        {"lines": [{"sku": 1}, {"sku": 2}]},
        ["/json/lines/0/sku", "/json/lines/1/sku"],
    ),
    "all of an object": ("payload:card", {"card": {"number": CARD}}, ["/json/card"]),
    "a key with a dot": ("payload:/a.b/c~1d", {"a.b": {"c/d": 1, "e": 2}}, ["/json/a.b/c~1d"]),
    "everything": ("payload:*", {"a": 1, "b": 2}, ["/json/a", "/json/b"]),
    "what is null": ("payload:a", {"a": None}, ["/json/a"]),
}


@pytest.mark.parametrize(("rule", "payload", "hidden"), PATHS.values(), ids=PATHS)
def test_a_path_hides(rule: str, payload: Any, hidden: list[str]) -> None:
    told = content_to_json(content(payload), payload=True, redaction=Redaction([rule]))
    assert told["redacted"] == hidden
    assert "data" not in told
    assert CARD not in json.dumps(told)


def test_the_rest_is_shown_as_it_is() -> None:
    assert shown({"card": {"number": CARD, "kind": "x"}}, "payload:card.number") == {
        "card": {"number": HIDDEN, "kind": "x"}
    }


def test_a_rule_that_meets_nothing_leaves_the_payload_whole() -> None:
    told = content_to_json(content({"a": 1}), payload=True, redaction=Redaction(["payload:card.number"]))
    assert told["json"] == {"a": 1}
    assert told["data"]
    assert "redacted" not in told


@pytest.mark.parametrize("data", [b"\xff" + CARD.encode(), CARD.encode(), b'{"a": 1, "a": 2}', b'{"card": '])
def test_a_payload_that_cannot_be_read_is_hidden_whole(data: bytes) -> None:
    told = content_to_json(content(data), payload=True, redaction=Redaction(["payload:card.number"]))
    assert told["text"] == HIDDEN
    assert "data" not in told
    assert "json" not in told


def test_attributes_and_ordering_keys() -> None:
    carried = content({"a": 1}, {"token": CARD, "kind": "x"}, CARD)
    told = content_to_json(carried, payload=True, redaction=Redaction(["attribute:token", "key"]))
    assert told["attributes"] == {"token": HIDDEN, "kind": "x"}
    assert told["orderingKey"] == HIDDEN
    assert told["json"] == {"a": 1}
    assert told["redacted"] == ["/attributes/token", "/orderingKey"]


@pytest.mark.parametrize(
    "rule", ["card", "payload:", "payload:a..b", "attribute:", "keys", "key:x", "payload:/a~2", ""]
)
def test_a_bad_rule_is_refused_by_the_setting(rule: str) -> None:
    with pytest.raises(SettingError, match=r"desk\.redact"):
        redaction_from(DeskSettings(redact=Texts([rule])))


# Text that quotes it.

QUOTES = {
    "as it is": (CARD, f"card {CARD} is bad"),
    "as Python writes it": ('O\'Brien\n"x"', "name " + repr('O\'Brien\n"x"')),
    "as JSON writes it": ('Zoë "Z"', 'name "Zo\\u00eb \\"Z\\""'),
    "as a URL has it": ("a b/c@d", "GET /x?q=a%20b%2Fc%40d failed"),
    "in other letters": ("Ann@Example.org", "unknown ANN@EXAMPLE.ORG"),
    "with its spaces put together": ("Baker  Street\n221b", "no Baker Street 221b"),
    "a number": (192.5847, "latitude 192.5847 exceeds 90"),
    "one that is short": ("7x", "7x is bad, 17x is not"),
}


@pytest.mark.parametrize(("value", "error"), QUOTES.values(), ids=QUOTES)
def test_a_hidden_value_is_replaced_in_text(value: Any, error: str) -> None:
    told = Redaction(["payload:secret"]).text(error, content({"secret": value}))
    assert HIDDEN in told
    assert str(value).lower() not in told.lower().replace("17x", "")


def test_short_values_leave_other_words_alone() -> None:
    told = Redaction(["payload:a"]).text("7 is bad, 17 and x7y are not", content({"a": 7}))
    assert told == f"{HIDDEN} is bad, 17 and x7y are not"


def test_the_longer_value_goes_first() -> None:
    told = Redaction(["payload:*"]).text("abcdefgh", content({"a": "abcd", "b": "abcdefgh"}))
    assert told == HIDDEN


def test_what_a_cut_left_of_a_value_is_replaced_too() -> None:
    """The error ends in the middle of the value."""
    text = bounded_error_details("x" * 8163 + " " + CARD + " is bad and more")
    assert CARD[:12] in text
    assert CARD not in text
    told = Redaction(["payload:card"]).text(text, content({"card": CARD}))
    assert CARD[:3] not in told
    assert told.endswith(" … (cut)")


def test_what_the_limit_of_an_attribute_left_of_a_value_is_replaced_too() -> None:
    """Errors of dead letters come in an attribute, and are cut there without a mark."""
    text = "last status 500: " + bounded_value("x" * 1011 + " " + CARD + " is bad")
    assert text.endswith(CARD[:12])
    told = Redaction(["payload:card"]).text(text, content({"card": CARD}))
    assert CARD[:3] not in told
    short = f"no price {CARD[:12]}"
    assert Redaction(["payload:card"]).text(short, content({"card": CARD})) == short


def test_a_long_value_costs_no_more_than_the_text_is_long() -> None:
    value = "".join(f"abc def {number}" for number in range(50_000))
    text = bounded_error_details("x" * 8000 + " " + value)
    began = time.perf_counter()
    told = Redaction(["payload:card"]).text(text, content({"card": value}))
    assert time.perf_counter() - began < 2
    assert told == "x" * 8000 + " [redacted] … (cut)"


@pytest.mark.parametrize("data", [b"card 4711x for ann", b"\xff\x034711x\x00ann", b'{"card": "4711x"'])
def test_of_a_payload_that_cannot_be_read_every_word_is_hidden(data: bytes) -> None:
    told = Redaction(["payload:card.number"]).text("bad 4711x of ANN at line 3", content(data))
    assert told == f"bad {HIDDEN} of {HIDDEN if b'ann' in data else 'ANN'} at line 3"


def test_a_packed_payload_is_unpacked_to_find_its_values() -> None:
    packed = gzip.compress(json.dumps({"card": {"number": CARD}, "kind": "visa"}).encode())
    told = Redaction(["payload:card.number"]).text(f"no {CARD} of visa", content(packed))
    assert told == f"no {HIDDEN} of visa"


def test_values_of_attributes_and_keys_are_replaced() -> None:
    redaction = Redaction(["attribute:token", "key"])
    told = redaction.text("token t0ken of customer-9", content({}, {"token": "t0ken"}, "customer-9"))
    assert told == f"token {HIDDEN} of {HIDDEN}"


# What may be asked.

SEARCHES = {
    "the field": Selection(payload={"card.number": CARD}),
    "what it is in": Selection(payload={"card": CARD}),
    "what is in it": Selection(payload={"card.number.0": CARD}),
    "by a wildcard": Selection(payload={"a.email": CARD}),
    "by another spelling": Selection(payload={"card.num\\ber": CARD}),
    "by another name of its place": Selection(payload={"lines.-1.sku": CARD}),
    "an attribute": Selection(attributes={"token": CARD}),
    "text": Selection(text=CARD),
}


@pytest.mark.parametrize("wanted", SEARCHES.values(), ids=SEARCHES)
def test_what_is_hidden_cannot_be_searched_for(wanted: Selection) -> None:
    rules = ["payload:card.number", "payload:*.email", "payload:lines.0.sku", "attribute:token"]
    with pytest.raises(PermissionDenied) as caught:
        Redaction(rules).check_selection(wanted)
    assert CARD not in str(caught.value)
    Redaction().check_selection(wanted)


def test_other_things_can() -> None:
    redaction = Redaction(["payload:card.number", "attribute:token"])
    redaction.check_selection(Selection(payload={"card.kind": "x", "order": "1"}, attributes={"kind": "x"}, reason="R"))


# What may be edited.

TOUCHES = {
    "the field itself": ("card", "number"),
    "what it is in": ("card",),
    "what is in it": ("card", "number", "0"),
    "everything": (),
    "its place in an array": ("lines", "0"),
    "a neighbour, whose removal would move it": ("lines", "1"),
    "the end of its array": ("lines", "-"),
}


@pytest.mark.parametrize("path", TOUCHES.values(), ids=TOUCHES)
def test_what_is_hidden_cannot_be_touched(path: tuple[str, ...]) -> None:
    redaction = Redaction(["payload:card.number", "payload:lines.0.sku"])
    document = document_of(content({"card": {"number": CARD}, "lines": [{"sku": 1}, {"sku": 2}]}))
    with pytest.raises(PermissionDenied):
        redaction.check_untouched(document, ("json", *path))
    Redaction().check_untouched(document, ("json", *path))


def test_what_is_beside_it_can() -> None:
    redaction = Redaction(["payload:**.number"])
    document = document_of(content({"card": {"number": CARD, "kind": 1}, "lines": [1, 2]}))
    for path in (("card", "kind"), ("card", "new"), ("lines", "0"), ("lines", "-"), ("new",)):
        redaction.check_untouched(document, ("json", *path))
