"""Subscription filters: the documented examples, where errors point, and any syntax tree against a naive evaluator."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.broker.filters import LONGEST_FILTER_BYTES, compile_filter
from holdfast.errors import BadInput

COM = {"name": "com"}
NET = {"name": "net"}
TAG = "iana.org/language_tag"


# The examples of "Filter messages from a subscription", and what its text says about them.
@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("", [{}, COM], []),
        ("attributes:name", [COM, NET, {"name": ""}], [{}, {"Name": "com"}, {"other": "com"}]),
        ("NOT attributes:name", [{}, {"Name": "com"}], [COM, {"name": ""}]),
        ('attributes.name = "com"', [COM, {"name": "com", "x": "y"}], [{}, NET, {"name": "Com"}, {"name": "com "}]),
        ('attributes.name != "com"', [{}, NET, {"name": "Com"}, {"Name": "com"}], [COM]),
        ('hasPrefix(attributes.name, "co")', [COM, {"name": "co"}], [{}, NET, {"name": "Com"}, {"name": "c"}]),
        ('NOT hasPrefix(attributes.name, "co")', [{}, NET], [COM]),
        ('hasPrefix(attributes.name, "")', [COM, {"name": ""}], [{}]),
        (f'attributes."{TAG}" = "en"', [{TAG: "en"}], [{TAG: "de"}, {}]),
        (r'attributes:"\u307F\u3093\u306A"', [{"みんな": ""}], [{r"\u307F\u3093\u306A": ""}]),
        (f'attributes:"{TAG}" AND attributes.name = "com"', [{TAG: "", **COM}], [{TAG: ""}, COM, {}]),
        (f'attributes:"{TAG}" AND NOT attributes.name = "com"', [{TAG: ""}, {TAG: "", **NET}], [{TAG: "", **COM}, {}]),
        (
            f'attributes:"{TAG}" AND (attributes.name = "net" OR attributes.name = "org")',
            [{TAG: "", **NET}, {TAG: "", "name": "org"}],
            [{TAG: "", **COM}, NET, {TAG: ""}],
        ),
        (f'attributes.name = "com" AND -attributes:"{TAG}"', [COM], [{TAG: "", **COM}, NET]),
    ],
)
def test_documented_examples(text: str, matching: list[dict[str, str]], others: list[dict[str, str]]) -> None:
    test = compile_filter(text)
    assert [test(attributes) for attributes in matching] == [True] * len(matching)
    assert [test(attributes) for attributes in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("NOT NOT attributes:a", {"a": ""}, True),
        ("--attributes:a", {}, False),
        ("-NOT attributes:a", {"a": ""}, True),
        ("NOT(attributes:a)", {}, True),
        ("NOT (attributes:a OR attributes:b)", {"b": ""}, False),
        ("-(attributes:a AND attributes:b)", {"b": ""}, True),
        # NOT binds more tightly than AND and OR.
        ("NOT attributes:a OR attributes:b", {"a": "", "b": ""}, True),
        ("NOT attributes:a AND attributes:b", {"b": ""}, True),
        ("attributes:a OR attributes:b OR attributes:c", {"c": ""}, True),
        ("attributes:a AND attributes:b AND attributes:c", {"a": "", "b": ""}, False),
        ("((attributes:a)) AND (attributes:b)", {"a": "", "b": ""}, True),
        ("  attributes\t:\r\na  ", {"a": ""}, True),
        ('hasPrefix ( attributes.a , "x" )', {"a": "xy"}, True),
        ('attributes.a="x"AND(attributes:b)', {"a": "x", "b": ""}, True),
        # A key may look like a word or symbol of the language.
        ('attributes.AND = "x" AND attributes:NOT', {"AND": "x", "NOT": ""}, True),
        ("attributes:-a AND attributes:1 AND attributes:a-b_c", {"-a": "", "1": "", "a-b_c": ""}, True),
        ('attributes:""', {"": ""}, True),
    ],
)
def test_structure(text: str, attributes: dict[str, str], expected: bool) -> None:
    assert compile_filter(text)(attributes) is expected


@pytest.mark.parametrize(
    ("escaped", "value"),
    [
        (r"\a\b\f\n\r\t\v", "\a\b\f\n\r\t\v"),
        (r"\\ \" \' \?", "\\ \" ' ?"),
        (r"\101\x41\u0041\U00000041", "AAAA"),
        (r"\0\18\377", "\x00\x018\xff"),
        (r"\xe9\303", "éÃ"),
        (r"\u00E9\u00e9", "éé"),
        (r"\U0001F600", "😀"),
        ("é😀*'", "é😀*'"),
    ],
)
def test_escapes(escaped: str, value: str) -> None:
    assert compile_filter(f'attributes.a = "{escaped}"')({"a": value})
    assert compile_filter(f'attributes:"{escaped}"')({value: ""})
    assert compile_filter(f'hasPrefix(attributes.a, "{escaped}")')({"a": value + "!"})


KEY_EXPECTED = "expected a key: letters of ASCII, digits, - and _, or any text in double quotes"
CONDITION = 'expected attributes:KEY, attributes.KEY = "value" or hasPrefix(attributes.KEY, "prefix")'
CAPITALS = "(operators are written in capitals)"
AN_ESCAPE = r"expected an escape such as \n, \\, \", \101, \x41, \u0041 or \U00000041"
A_CHARACTER = r"expected a Unicode character: up to \U0010ffff and no half of a surrogate pair"
MIXED = "AND and OR are mixed only with parentheses, as in x AND (y OR z)"


@pytest.mark.parametrize(
    ("text", "character", "why"),
    [
        ('"com" = attributes.name', 1, f"{CONDITION}, not '\"'"),
        ("attributes.name = attributes.website", 19, "expected a string in double quotes, not 'attributes'"),
        ('attributes.name = ("net" OR "org")', 19, "expected a string in double quotes, not '('"),
        ("attributes.name = 'com'", 19, 'expected a string in double quotes, not "\'"'),
        ("attributes.name = 5", 19, "expected a string in double quotes, not '5'"),
        (r"attributes:\u307F", 12, f"{KEY_EXPECTED}, not '\\\\'"),
        ("attributes:é", 12, f"{KEY_EXPECTED}, not 'é'"),
        ("attributes:", 12, f"{KEY_EXPECTED}, not the end of the filter"),
        (
            f"attributes:{TAG}",
            16,
            "expected the end of the key: one with other characters is put in double quotes, not '.'",
        ),
        ("attributes:a AND attributes:b OR attributes:c", 31, f"expected AND: {MIXED}"),
        ("attributes:a OR NOT attributes:b AND attributes:c", 34, f"expected OR: {MIXED}"),
        ("(attributes:a OR attributes:b AND attributes:c)", 31, f"expected OR: {MIXED}"),
        ("attributes:a and attributes:b", 14, f"expected AND, OR or the end {CAPITALS}, not 'and'"),
        ("not attributes:a", 1, f"{CONDITION} {CAPITALS}, not 'not'"),
        ("attributes:a attributes:b", 14, "expected AND, OR or the end, not 'attributes'"),
        ("attributes:a)", 13, "expected AND, OR or the end: this ) closes nothing"),
        ("attributes:b OR (attributes:a", 30, "expected ) for the ( at character 17"),
        ("()", 2, f"{CONDITION}, not ')'"),
        (" ", 2, f"{CONDITION}, not the end of the filter"),
        ("attributes:a AND", 17, f"{CONDITION}, not the end of the filter"),
        ("NOTattributes:a", 1, f"{CONDITION}, not 'NOTattributes'"),
        ("Attributes:a", 1, f"{CONDITION}, not 'Attributes'"),
        ('hassuffix(attributes.a, "x")', 1, f"{CONDITION}, not 'hassuffix'"),
        ("data:a", 1, f"{CONDITION}, not 'data'"),
        ('attributes["a"] = "x"', 11, 'expected ":" or "." after attributes, not \'[\''),
        ('attributes.a > "x"', 14, 'expected "=" or "!=" after the key, not \'>\''),
        ("attributes.a", 13, 'expected "=" or "!=" after the key, not the end of the filter'),
        ('hasPrefix attributes.a, "x")', 11, "expected \"(\" after hasPrefix, not 'attributes'"),
        ('hasPrefix("x", attributes.a)', 11, "expected attributes.KEY, not '\"'"),
        ('hasPrefix(attributes:a, "x")', 21, "expected \".\" after attributes, not ':'"),
        ("hasPrefix(attributes.a)", 23, "expected \",\" after the key, not ')'"),
        ('hasPrefix(attributes.a, "x", "y")', 28, "expected \")\" after the prefix, not ','"),
        ('attributes.a = "x', 18, 'expected " for the string that starts at character 16'),
        ('attributes.a = "x\\"', 20, 'expected " for the string that starts at character 16'),
        ('attributes.a = "x\n"', 18, r"expected \x0a: a control character in a string is escaped"),
        (r'attributes.a = "x\q"', 18, AN_ESCAPE),
        (r'attributes.a = "\x4"', 17, AN_ESCAPE),
        ('attributes.a = "\\', 17, AN_ESCAPE),
        (r'attributes.a = "\777"', 17, r"expected an octal escape up to \377"),
        (r'attributes.a = "\ud83d\ude00"', 17, A_CHARACTER),
        (r'attributes.a = "\U00110000"', 17, A_CHARACTER),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, character: int, why: str) -> None:
    with pytest.raises(BadInput) as caught:
        compile_filter(text)
    assert (caught.value.field, caught.value.why) == ("filter", f"character {character}: {why}")


def test_the_longest_filter_is_counted_in_bytes() -> None:
    longest = 'attributes.a = "' + "é" * 119 + 'x"'
    assert len(longest.encode()) == LONGEST_FILTER_BYTES
    assert compile_filter(longest)({"a": "é" * 119 + "x"})
    with pytest.raises(BadInput, match="filter: is 257 bytes long; 256 are allowed"):
        compile_filter(longest + " ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(" * 122 + "attributes:a" + ")" * 122, True),
        ("-" * 244 + "attributes:a", True),
        ("NOT " * 61 + "attributes:a", False),
        ("-(" * 81 + "attributes:a" + ")" * 81, False),
    ],
)
def test_deep_nesting(text: str, expected: bool) -> None:
    assert compile_filter(text)({"a": ""}) is expected


@pytest.mark.parametrize("text", ["(" * 256, "-" * 256, "NOT " * 64, "-(" * 128, "\\" * 256, "(" * 10_000_000])
def test_hostile_nesting_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        compile_filter(text)


@given(st.text(max_size=80) | st.text(alphabet='attributes:.=!()-"\\x AND OR NOT', max_size=80))
def test_any_text_is_a_filter_or_bad_input(text: str) -> None:
    try:
        test = compile_filter(text)
    except BadInput:
        return
    assert test({"a": "b"}) in (True, False)


# A second implementation, as plain as can be: trees that print and evaluate themselves.


@dataclass(frozen=True)
class Has:
    key: str


@dataclass(frozen=True)
class Compare:
    operator: str
    key: str
    value: str


@dataclass(frozen=True)
class Not:
    inner: Tree


@dataclass(frozen=True)
class Both:
    operator: str
    parts: tuple[Tree, ...]


Tree = Has | Compare | Not | Both


def evaluate(tree: Tree, attributes: Mapping[str, str]) -> bool:
    match tree:
        case Has(key):
            return any(key == name for name in attributes)
        case Compare("=", key, value):
            return (key, value) in attributes.items()
        case Compare("!=", key, value):
            return (key, value) not in attributes.items()
        case Compare(_, key, prefix):
            return any(name == key and found[: len(prefix)] == prefix for name, found in attributes.items())
        case Not(inner):
            return not evaluate(inner, attributes)
        case Both("AND", parts):
            return all(evaluate(part, attributes) for part in parts)
        case Both(_, parts):
            return any(evaluate(part, attributes) for part in parts)


@dataclass
class Printer:
    """Prints a tree as one of the many texts that mean it; `draw` chooses among them."""

    draw: st.DrawFn

    def choose(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def gap(self) -> str:
        return self.choose("", "", " ", "\n\t")

    def tree(self, tree: Tree) -> str:
        match tree:
            case Has(key):
                return f"attributes{self.gap()}:{self.gap()}{self.key(key)}"
            case Compare("hasPrefix", key, prefix):
                arguments = f"attributes.{self.key(key)}{self.gap()},{self.gap()}{self.string(prefix)}"
                return f"hasPrefix{self.gap()}({self.gap()}{arguments}{self.gap()})"
            case Compare(operator, key, value):
                return f"attributes.{self.key(key)}{self.gap()}{operator}{self.gap()}{self.string(value)}"
            case Not(inner):
                return self.choose("NOT ", "-", "- ", "NOT\n") + self.operand(inner)
            case Both(operator, parts):
                return f" {operator} ".join(self.operand(part) for part in parts)

    def operand(self, tree: Tree) -> str:
        text = self.tree(tree)
        in_parentheses = f"({self.gap()}{text}{self.gap()})"
        return in_parentheses if isinstance(tree, Both) else self.choose(text, text, in_parentheses)

    def key(self, key: str) -> str:
        plain = bool(key) and set(key) <= set(string.ascii_letters + string.digits + "-_")
        return self.choose(key, self.string(key)) if plain else self.string(key)

    def string(self, value: str) -> str:
        return '"' + "".join(self.character(char) for char in value) + '"'

    def character(self, char: str) -> str:
        code = ord(char)
        ways = [f"\\U{code:08x}"]
        if code <= 0xFFFF:
            ways.append(f"\\u{code:04X}")
        if code <= 0xFF:
            ways += [f"\\x{code:02x}", f"\\{code:03o}"]
        if char not in '"\\' and char.isprintable():
            ways += [char] * 6
        if char in '"\\':
            ways.append("\\" + char)
        return self.choose(*ways)


# Few and odd, so that keys and values of tree and message meet; the last letters are where escapes could go wrong.
_texts = st.text(alphabet='ab.-"\\\n\x00é😀 \x7f', max_size=2) | st.sampled_from(["AND", "a-b", "x" * 9])
_leaves = st.builds(Has, _texts) | st.builds(Compare, st.sampled_from(["=", "!=", "hasPrefix"]), _texts, _texts)
_trees: st.SearchStrategy[Tree] = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Both, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


@st.composite
def trees_with_text(draw: st.DrawFn) -> tuple[Tree, str]:
    tree = draw(_trees)
    text = Printer(draw).tree(tree)
    assume(len(text.encode()) <= LONGEST_FILTER_BYTES)
    return tree, text


@st.composite
def pairs_with_text(draw: st.DrawFn) -> tuple[str, str, str]:
    key, value = draw(st.text(max_size=15)), draw(st.text(max_size=15))
    text = Printer(draw).tree(Compare("=", key, value))
    assume(len(text.encode()) <= LONGEST_FILTER_BYTES)
    return key, value, text


@given(trees_with_text(), st.dictionaries(_texts, _texts, max_size=4))
def test_every_tree_means_what_a_naive_evaluator_says(printed: tuple[Tree, str], attributes: dict[str, str]) -> None:
    tree, text = printed
    assert compile_filter(text)(attributes) is evaluate(tree, attributes)


@given(pairs_with_text())
def test_every_key_and_value_can_be_written(printed: tuple[str, str, str]) -> None:
    key, value, text = printed
    test = compile_filter(text)
    assert test({key: value})
    assert not test({key: value + "x"})
    assert not test({key + "x": value})
