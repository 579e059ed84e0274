"""docs/guarantees.md names code and tests that exist, and a test or a command for every promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_docs import quoted

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guarantees.md"

# The titles of the design's promises, and of what the desk adds to them.
PROMISES = [
    "What was published stays",
    "One outcome for each delivery",
    "The same documents as in order",
    "Nothing is acked too early",
    "One does not slow the others",
    "Bad input",
    "As Cloud Pub/Sub",
    "The desk",
]


def part(title: str) -> str:
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [found] = [part for part in parts if part.startswith(f"{title}\n")]
    return found


def files_in(text: str) -> list[str]:
    return [word for word in quoted(text) if re.match(r"(src|tests)/", word)]


def test_every_file_that_is_named_exists() -> None:
    named = files_in(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 60
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("title", PROMISES)
def test_a_promise_says_where_it_is_done_and_what_tries_to_break_it(title: str) -> None:
    done, tried = part(title).split("**What tries to break it**")
    assert any(name.startswith("src/") for name in files_in(done))
    assert any(name.startswith("tests/") for name in files_in(tried))
    assert re.search(r"\*\*(Survived|Figures)\*\*", tried)


def test_each_step_of_the_path_is_tried() -> None:
    rows = [line for line in part("Step by step").splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) == 9
    assert all("tests/" in row or "Tried by" in row for row in rows)
