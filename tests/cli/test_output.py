"""Tables, as a terminal shows them."""

from __future__ import annotations

import pytest

from holdfast.cli.output import LONGEST_CELL, print_table


def test_columns_stand_below_each_other_whatever_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("abcdef", 1), ("日本語", 2), ("e\u0301te\u0301abc", 3)])
    assert capsys.readouterr().out.splitlines() == ["NAME    N", "abcdef  1", "日本語  2", "e\u0301te\u0301abc  3"]


def test_a_long_cell_is_cut_to_its_columns_unless_all_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for text, cut in (("x" * 61, "x" * 59 + "…"), ("日" * 31, "日" * 29 + "…"), ("x" * 60, "x" * 60)):
        print_table(("a",), [(text,)])
        assert capsys.readouterr().out.splitlines()[1] == cut
        print_table(("a",), [(text,)], whole=True)
        assert capsys.readouterr().out.splitlines()[1] == text
    assert LONGEST_CELL == 60
