"""The benchmarks' own code: what the documentation shows of them, parts that fail, profiles. It measures nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import pages, profiling, report
from bench.figures import Bar, Comparison, Part, Series, Usage
from bench.flame import flame
from bench.generator import LoadFailed
from bench.missing import Missing

ROOT = Path(__file__).resolve().parent.parent
PERFORMANCE = ROOT / "docs" / "performance.md"

USAGE = Usage(1.0, 0.5, 5.0, 100.0, 0.2, 0.0)


def comparison(value: float = 90.0, peer: float | None = 100.0, bar: Bar = Bar(ratio=1.0), **names: str) -> Comparison:  # noqa: B008 - it is frozen
    theirs = None if peer is None else Series("the peer", [peer] * 3, USAGE)
    ours = Series("Holdfast", [value - 1, value, value + 1], USAGE)
    return Comparison(names.get("name", "rate"), names.get("title", "a rate"), "msg/s", "higher", bar, ours, theirs)


def part(name: str, *comparisons: Comparison, commit: str = "abc") -> Part:
    return Part(name, {"date": "today", "commit": commit, "machine": "2 cores"}, 1.0, list(comparisons))


# The documentation.


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_documentation_shows_the_last_results(page: Path) -> None:
    """`python -m bench.pages` writes it again."""
    parts = {found.name: found for found in report.read_parts(bench.RESULTS, list(bench.PARTS))}
    assert page.read_text(encoding="utf-8") == pages.with_figures(page, parts)


def test_every_part_and_every_profile_has_its_place_in_the_documentation() -> None:
    places = pages.marked(PERFORMANCE)
    wanted = [*bench.PARTS, *(f"profile-{name}" for name in profiling.PATHS), "limits-shares"]
    assert sorted(places) == sorted(wanted)
    for name in bench.PARTS:
        assert f"| `{name}` |" in PERFORMANCE.read_text(encoding="utf-8")


def test_the_page_of_results_is_that_of_the_last_results(tmp_path: Path) -> None:
    for found in report.read_parts(bench.RESULTS, list(bench.PARTS)):
        report.write_part(tmp_path, found, "")
    report.write_markdown(tmp_path, list(bench.PARTS))
    assert (bench.RESULTS / "results.md").read_text() == (tmp_path / "results.md").read_text()


def test_a_page_gets_figures_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "before\n<!-- bench: one -->\nstale\n<!-- bench: end -->\nafter\n<!-- bench: two -->\n<!-- bench: end -->\n"
    )
    results = tmp_path / "results"
    report.write_part(results, part("one", comparison()), "<svg/>")
    text = pages.with_figures(page, {"one": part("one", comparison())}, results)
    assert text.startswith("before\n<!-- bench: one -->\n| measure |")
    assert (
        "| a rate | 90.0 msg/s (89.0 to 91.0) | 100 msg/s (100 to 100) | 0.90x (0.89 to 0.91) | ≥ 1x | **missed** |"
        in text
    )
    assert "![one](../results/one.svg)" in text
    assert "stale" not in text
    assert text.endswith("after\n<!-- bench: two -->\nNot measured yet: `make bench ONLY=two`.\n<!-- bench: end -->\n")


def limit_parts(commit: str) -> dict[str, Part]:
    ours = part("broker", comparison(80_000.0, name="publish_batch_sqlite", title="batches"))
    limit = comparison(400_000.0, None, Bar(), name="limit_append_grouped", title="SQLite alone")
    return {"broker": ours, "limits": part("limits", limit, commit=commit)}


def test_a_share_of_a_limit_is_told_of_one_run_only() -> None:
    assert "| batches | 80,000 msg/s | SQLite alone | 400,000 msg/s | 20% |" in pages._shares(limit_parts("abc"))
    assert pages._shares(limit_parts("other")).startswith("Not measured in one run yet")


# Parts that fail.


@pytest.fixture
def session() -> Any:
    """Parts of these tests ask nothing of it."""
    return None


def test_a_part_that_fails_does_not_cost_the_others_theirs(
    tmp_path: Path, session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(error: Exception) -> Any:
        def run(session: Any) -> Any:
            raise error

        return run

    parts = {
        "lost": fails(LoadFailed("3 messages did not arrive")),
        "absent": fails(Missing("there is no Java")),
        "broken": fails(ZeroDivisionError("nobody foresaw it")),
        "good": lambda session: [comparison()],
    }
    monkeypatch.setattr(bench, "PARTS", parts)
    monkeypatch.setattr(bench, "describe_environment", lambda session: {"date": "today"})
    failed = bench.run_parts(list(parts), session, tmp_path)
    assert failed == {
        "lost": "3 messages did not arrive",
        "absent": "there is no Java",
        "broken": "ZeroDivisionError: nobody foresaw it",
    }
    assert [found.name for found in report.read_parts(tmp_path, list(parts))] == ["good"]
    assert "bench: absent failed: there is no Java" in capsys.readouterr().err


def test_a_part_that_is_not_there_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "broker", "tea"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no part called tea" in done.stderr


# Profiles.

LOOP = ("<module> (holdfast:1)", "run (holdfast/cli/run/running.py:1)")
WRITER = ("Thread._bootstrap (threading.py:9)", "_write_loop (holdfast/stores/sqlite/database.py:1)")


def test_a_profile_shares_processor_time_among_places() -> None:
    """40 looks at the event loop are its 80 µs, so 10 at a thread are 20; what is left of its 50 is SQLite's."""
    stacks = {
        (*LOOP, "write (holdfast/api/http2/sending.py:5)", "join (bytes.py:1)"): 30,
        (*LOOP, "split (holdfast/broker/wire.py:5)"): 10,
        (*WRITER, "encode_block (holdfast/stores/sqlite/blocks.py:5)"): 10,
    }
    rows = {row.where: row.microseconds for row in profiling._rows(stacks, 80.0, 50.0)}
    assert rows == {
        "HTTP/2: writing to sockets, the system call included": pytest.approx(60.0),
        "protobuf: requests cut up, messages and answers put together": pytest.approx(20.0),
        "store: queue, blocks, statements": pytest.approx(20.0),
        profiling.OUTSIDE: pytest.approx(30.0),
    }


def test_a_profile_never_tells_of_more_than_was_used() -> None:
    """Looks are samples: a few may fall on one thread more often than it ran."""
    rows = profiling._rows({WRITER: 1_000, LOOP: 1}, 5.0, 50.0)
    assert sum(row.microseconds for row in rows) == pytest.approx(55.0)
    assert profiling.OUTSIDE not in [row.where for row in rows]


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ("take (/srv/holdfast/src/holdfast/broker/leases.py:5)", "take (holdfast/broker/leases.py:5)"),
        ("run (/srv/holdfast/.venv/lib/python3.11/site-packages/uvicorn/server.py:5)", "run (uvicorn/server.py:5)"),
        ("_bootstrap (/usr/lib/python3.11/threading.py:5)", "_bootstrap (threading.py:5)"),
        ("<module> (/srv/holdfast/.venv/bin/holdfast:8)", "<module> (holdfast:8)"),
        ("__init__ (<string>:2)", "__init__ (<string>:2)"),
    ],
)
def test_a_profile_does_not_say_where_the_files_lie(seen: str, kept: str) -> None:
    assert profiling._without_folder(seen) == kept


def test_a_flame_graph_has_each_function_as_wide_as_its_share() -> None:
    picture = flame({("all & sundry", "left"): 3, ("all & sundry", "right"): 1}, lambda name: "#fff")
    widths = {name: float(width) for name, width in re.findall(r"<title>(\w+).*?width=\"([\d.]+)\"", picture)}
    assert widths["left"] == pytest.approx(3 * widths["right"], rel=0.01)
    assert "all &amp; sundry: 100.0%" in picture


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = profiling.Profile("one", "One", {"date": "today"}, 10.0, 1.0, 2.0, 5, [profiling.Row("here", 3.0)])
    assert profiling.read(tmp_path, "one") is None
    profiling.write(tmp_path, found, "<svg/>")
    assert profiling.read(tmp_path, "one") == found
    assert "| here | 3.00 | 100% |" in profiling.markdown(found)
