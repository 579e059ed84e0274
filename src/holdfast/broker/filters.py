r"""Subscription filters: the whole documented grammar, compiled to one function over a message's attributes.

    attributes:KEY                      the attribute is there
    attributes.KEY = "v"                it is there with this value
    attributes.KEY != "v"               the opposite: another value, or no such attribute
    hasPrefix(attributes.KEY, "p")      it is there with a value that starts so
    NOT x, -x, x AND y, x OR y, (x)     capitals only; AND and OR are mixed only with parentheses

KEY is letters of ASCII, digits, - and _, or a string. A string stands in double quotes; \n \t \\ \" and the other
escapes of C, \ooo, \xhh, \uhhhh and \Uhhhhhhhh (all of them code points) are understood. Keys and values are
case-sensitive.

What the documentation leaves open is decided here: white space may stand between any two tokens, NOT may be repeated,
and an unknown escape is an error. Only attributes can be filtered on; Pub/Sub has no filter over data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from holdfast.errors import BadInput

Test = Callable[[Mapping[str, str]], bool]

LONGEST_FILTER_BYTES = 256  # Cloud Pub/Sub's

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_AFTER_KEY = re.compile(r"[\s=!:,()<>&|]|$")
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f]+')
_OCTAL = re.compile(r"[0-7]{1,3}")
_HEX = {"x": re.compile(r"[0-9A-Fa-f]{2}"), "u": re.compile(r"[0-9A-Fa-f]{4}"), "U": re.compile(r"[0-9A-Fa-f]{8}")}
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "?": "?",
}

_CONDITION = 'attributes:KEY, attributes.KEY = "value" or hasPrefix(attributes.KEY, "prefix")'


def compile_filter(text: str) -> Test:
    """Raises BadInput, which names the character (counted from 1) and what was expected there."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_FILTER_BYTES:
        raise BadInput("filter", f"is {size} bytes long; {LONGEST_FILTER_BYTES} are allowed")
    if not text:
        return _everything
    return _parse(_Reader(text))


# From groups of conditions to a test. The parser keeps its own stack, so that no nesting can exhaust Python's.


@dataclass(slots=True)
class _Group:
    """The conditions between two parentheses, or the whole filter."""

    opened_at: int = 0
    negated: bool = False
    operator: str = ""
    tests: list[Test] = field(default_factory=list)

    def test(self) -> Test:
        combined = _any_of(self.tests) if self.operator == "OR" else _all_of(self.tests)
        return _not(combined) if self.negated else combined


def _parse(reader: _Reader) -> Test:
    groups = [_Group()]
    while True:
        negated = _negations(reader) % 2 == 1
        opened_at = reader.here()
        if reader.take("("):
            groups.append(_Group(opened_at, negated))
            continue
        condition = _condition(reader)
        groups[-1].tests.append(_not(condition) if negated else condition)
        _close_groups(reader, groups)
        if reader.at_end():
            break
        _join(reader, groups[-1])
    if len(groups) > 1:
        reader.fail(f"expected ) for the ( at character {groups[-1].opened_at + 1}")
    return groups[0].test()


def _negations(reader: _Reader) -> int:
    count = 0
    while reader.take("-") or reader.take_word("NOT"):
        count += 1
    return count


def _close_groups(reader: _Reader, groups: list[_Group]) -> None:
    at = reader.here()
    while reader.take(")"):
        if len(groups) == 1:
            reader.fail("expected AND, OR or the end: this ) closes nothing", at)
        inner = groups.pop()
        groups[-1].tests.append(inner.test())
        at = reader.here()


def _join(reader: _Reader, group: _Group) -> None:
    at = reader.here()
    operator = reader.word()
    if operator not in ("AND", "OR"):
        capitals = " (operators are written in capitals)" if operator.upper() in ("AND", "OR") else ""
        reader.fail_instead(f"expected AND, OR or the end{capitals}", at)
    if group.operator and operator != group.operator:
        reader.fail(f"expected {group.operator}: AND and OR are mixed only with parentheses, as in x AND (y OR z)", at)
    group.operator = operator


# Conditions.


def _condition(reader: _Reader) -> Test:
    at = reader.here()
    word = reader.word()
    if word == "hasPrefix":
        return _prefix_condition(reader)
    if word == "attributes":
        return _attribute_condition(reader)
    capitals = " (operators are written in capitals)" if word.lower() == "not" else ""
    return reader.fail_instead(f"expected {_CONDITION}{capitals}", at)


def _attribute_condition(reader: _Reader) -> Test:
    if reader.take(":"):
        return _has(reader.key())
    if not reader.take("."):
        reader.fail_instead('expected ":" or "." after attributes')
    key = reader.key()
    if reader.take("!="):
        return _not_equals(key, reader.string())
    if reader.take("="):
        return _equals(key, reader.string())
    return reader.fail_instead('expected "=" or "!=" after the key')


def _prefix_condition(reader: _Reader) -> Test:
    reader.expect("(", "after hasPrefix")
    at = reader.here()
    if reader.word() != "attributes":
        reader.fail_instead("expected attributes.KEY", at)
    reader.expect(".", "after attributes")
    key = reader.key()
    reader.expect(",", "after the key")
    prefix = reader.string()
    reader.expect(")", "after the prefix")
    return _starts_with(key, prefix)


# What runs for every message: one small closure per condition.


def _everything(attributes: Mapping[str, str]) -> bool:
    return True


def _has(key: str) -> Test:
    return lambda attributes: key in attributes


def _equals(key: str, value: str) -> Test:
    return lambda attributes: attributes.get(key) == value


def _not_equals(key: str, value: str) -> Test:
    return lambda attributes: attributes.get(key) != value


def _starts_with(key: str, prefix: str) -> Test:
    def test(attributes: Mapping[str, str]) -> bool:
        value = attributes.get(key)
        return value is not None and value.startswith(prefix)

    return test


def _not(inner: Test) -> Test:
    return lambda attributes: not inner(attributes)


def _all_of(tests: Sequence[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    # A loop: all() over a generator takes twice as long.
    def test(attributes: Mapping[str, str]) -> bool:
        for one in tests:  # noqa: SIM110
            if not one(attributes):
                return False
        return True

    return test


def _any_of(tests: Sequence[Test]) -> Test:
    def test(attributes: Mapping[str, str]) -> bool:
        for one in tests:  # noqa: SIM110
            if one(attributes):
                return True
        return False

    return test


# Characters to tokens.


class _Reader:
    """Reads tokens from left to right, past white space, and knows where it is for the error."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def here(self) -> int:
        """Where the next token starts."""
        self._at = _end_of(_SPACE, self._text, self._at)
        return self._at

    def at_end(self) -> bool:
        return self.here() == len(self._text)

    def take(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self.here()):
            return False
        self._at += len(symbol)
        return True

    def expect(self, symbol: str, where: str) -> None:
        if not self.take(symbol):
            self.fail_instead(f'expected "{symbol}" {where}')

    def take_word(self, word: str) -> bool:
        start = self.here()
        if self.word() == word:
            return True
        self._at = start
        return False

    def word(self) -> str:
        return self._take_match(_WORD)

    def key(self) -> str:
        if self._text.startswith('"', self.here()):
            return self.string()
        key = self._take_match(_KEY)
        if not key:
            self.fail_instead("expected a key: letters of ASCII, digits, - and _, or any text in double quotes")
        if not _AFTER_KEY.match(self._text, self._at):
            # The likeliest mistake of all: attributes:iana.org/language_tag.
            self.fail_instead(
                "expected the end of the key: one with other characters is put in double quotes", self._at
            )
        return key

    def string(self) -> str:
        opened_at = self.here()
        if not self.take('"'):
            self.fail_instead("expected a string in double quotes")
        parts: list[str] = []
        while True:
            plain = _end_of(_PLAIN, self._text, self._at)
            parts.append(self._text[self._at : plain])
            self._at = plain
            following = self._text[plain : plain + 1]
            if following == '"':
                self._at += 1
                return "".join(parts)
            if following == "\\":
                parts.append(self._escaped())
            elif following:
                self.fail(f"expected \\x{ord(following):02x}: a control character in a string is escaped", plain)
            else:
                self.fail(f'expected " for the string that starts at character {opened_at + 1}', plain)

    def _escaped(self) -> str:
        start = self._at
        letter = self._text[start + 1 : start + 2]
        if letter in _ESCAPES:
            self._at += 2
            return _ESCAPES[letter]
        digits, base = (_HEX[letter], 16) if letter in _HEX else (_OCTAL, 8)
        first = start + 2 if letter in _HEX else start + 1
        self._at = _end_of(digits, self._text, first)
        if self._at == first:
            self.fail('expected an escape such as \\n, \\\\, \\", \\101, \\x41, \\u0041 or \\U00000041', start)
        return self._character(int(self._text[first : self._at], base), base, start)

    def _character(self, code: int, base: int, start: int) -> str:
        if base == 8 and code > 0o377:
            self.fail("expected an octal escape up to \\377", start)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail("expected a Unicode character: up to \\U0010ffff and no half of a surrogate pair", start)
        return chr(code)

    def _take_match(self, pattern: re.Pattern[str]) -> str:
        start = self.here()
        self._at = _end_of(pattern, self._text, start)
        return self._text[start : self._at]

    def fail_instead(self, why: str, at: int | None = None) -> NoReturn:
        """Says also what stands there instead."""
        at = self.here() if at is None else at
        found = _WORD.match(self._text, at)
        there = found[0] if found else self._text[at : at + 1]
        self.fail(f"{why}, not {there!r}" if there else f"{why}, not the end of the filter", at)

    def fail(self, why: str, at: int | None = None) -> NoReturn:
        raise BadInput("filter", f"character {(self.here() if at is None else at) + 1}: {why}")


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
