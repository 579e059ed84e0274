"""The tables of spans and attributes against the documentation."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

from holdfast.tracing.spans import ATTRIBUTES, ERROR_TYPE, OPERATION, OPERATION_TYPE, SPANS, SYSTEM

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "traces.md"
SCRIPT = ROOT / "scripts" / "traces-table"


def rows(name: str) -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name}: begin -->\n")[2].partition("<!--")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]


def test_the_page_has_every_span_with_its_attributes() -> None:
    everywhere = {SYSTEM, OPERATION, ERROR_TYPE}
    told = [(span, kind, set(attributes.replace("`", "").split(", "))) for span, kind, _, attributes in rows("spans")]
    assert told == [
        (f"`{one.operation}` {one.about}", one.kind.value, set(one.all_attributes) - everywhere) for one in SPANS
    ]


def test_the_page_has_every_attribute() -> None:
    assert rows("attributes") == [[f"`{name}`", doc] for name, doc in ATTRIBUTES.items()]


def test_every_attribute_is_of_some_span_and_the_other_way_round() -> None:
    assert {name for kind in SPANS for name in kind.all_attributes} == ATTRIBUTES.keys()
    assert {kind.operation_type for kind in SPANS} - {""} == {"send", "process", "settle"}
    assert OPERATION_TYPE in ATTRIBUTES
    assert len({kind.operation for kind in SPANS}) == len(SPANS)


def test_the_script_that_writes_the_tables_changes_nothing() -> None:
    loader = importlib.machinery.SourceFileLoader("traces_table", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(SCRIPT.read_text(encoding="utf-8"), SCRIPT, "exec"), module.__dict__)
    page = PAGE.read_text(encoding="utf-8")
    assert page == module.with_tables(page), f"run {SCRIPT.relative_to(ROOT)} --write"
