"""Puts the figures into the documentation, between two markers for each, so that a page never says what no run did:

    <!-- bench: NAME -->
    <!-- bench: end -->

NAME is a part: its table, its plot and on what it was measured. Or `limits-shares`: how far Holdfast is from what the
machine can do. Or `profile-NAME`: where the time of a hot path goes, by bench/profiling.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import profiling, report
from bench.figures import Comparison, Part, Series
from bench.report import number, table, verdict

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")

MARKED = re.compile(r"(<!-- bench: (?!end)([\w-]+) -->\n)(.*?)(<!-- bench: end -->\n)", re.DOTALL)

# What README shows: a few of many, without the peers of which there are two.
HEADLINES = (
    ("broker", "publish_batch_sqlite"),
    ("broker", "publish_to_ack_sqlite"),
    ("broker", "latency_p50_sqlite"),
    ("push", "push_sqlite"),
    ("consumer", "consume_push_sqlite"),
    ("firestore", "consume_push_firestore"),
    ("pull", "pull_sqlite"),
    ("startup", "startup_sqlite"),
)


def write(results: Path, order: Sequence[str]) -> None:
    report.write_markdown(results, order)
    parts = {part.name: part for part in report.read_parts(results, order)}
    for page in PAGES:
        page.write_text(with_figures(page, parts, results), encoding="utf-8")


def with_figures(page: Path, parts: Mapping[str, Part], results: Path = RESULTS) -> str:
    folder = Path(os.path.relpath(results, page.parent))

    def section(match: re.Match[str]) -> str:
        return f"{match[1]}{_section(match[2], parts, results, folder)}{match[4]}"

    return MARKED.sub(section, page.read_text(encoding="utf-8"))


def marked(page: Path) -> list[str]:
    return [name for _, name, _, _ in MARKED.findall(page.read_text(encoding="utf-8"))]


def _section(name: str, parts: Mapping[str, Part], results: Path, folder: Path) -> str:
    if name in OTHERS:
        return OTHERS[name](parts)
    if name.startswith("profile-"):
        return _profile(name.removeprefix("profile-"), results, folder)
    if name in parts:
        return _part(parts[name], folder)
    return f"Not measured yet: `make bench ONLY={name}`.\n"


def _part(part: Part, folder: Path) -> str:
    return (
        f"{report.comparison_table(part.comparisons)}\n\n"
        f"![{part.name}]({folder / part.name}.svg)\n\n"
        f"{report.measured(part)}\n"
    )


def _profile(name: str, results: Path, folder: Path) -> str:
    found = profiling.read(results, name)
    if found is None:
        return f"Not measured yet: `make profile ONLY={name}`.\n"
    picture = folder / profiling.FOLDER / f"{name}.svg"
    return f"{profiling.markdown(found)}\n\n![where {name} goes]({picture})\n\n{profiling.measured(found)}\n"


# Headlines.


def _headlines(parts: Mapping[str, Part]) -> str:
    found = [_figure(parts, part, name) for part, name in HEADLINES]
    rows = [
        [one.title, _value(one.ours, one.unit), _peer(one), one.bar.text(one.unit), verdict(one)]
        for one in found
        if one
    ]
    return table(["measure", "Holdfast", "peer in the same run", "bar", ""], rows) + "\n"


def _value(series: Series, unit: str) -> str:
    return f"{number(series.median)} {unit}".rstrip()


def _peer(one: Comparison) -> str:
    if one.peer is None or one.ratio is None:
        return ""
    return f"{one.peer.contestant}: {_value(one.peer, one.unit)}, {number(one.ratio)}x"


# Limits.


def _shares(parts: Mapping[str, Part]) -> str:
    """Of one machine in one state: a share of yesterday's limit would say nothing."""
    rows = [row for share in SHARES if (row := _share(parts, *share))]
    same = {tuple(parts[name].environment[key] for key in ("commit", "machine")) for name in SHARED if name in parts}
    if not rows or len(same) > 1:
        return 'Not measured in one run yet: `make bench ONLY="broker limits"`.\n'
    return table(["what Holdfast does", "", "what the machine can do", "", "share of it"], rows) + "\n"


SHARED = ("broker", "limits")

# A figure of Holdfast, and the limit that no figure of this kind can pass.
SHARES = (
    ("broker", "publish_batch_sqlite", "append_grouped"),
    ("broker", "publish_batch_sqlite", "loopback"),
    ("broker", "publish_batch_sqlite", "parse"),
    ("broker", "publish_batch_memory", "loopback"),
    ("broker", "publish_single_sqlite", "loopback_lone"),
    ("broker", "latency_p50_sqlite", "fsync"),
    ("broker", "latency_p50_sqlite", "commit_lone"),
)


def _share(parts: Mapping[str, Part], part: str, name: str, limit_name: str) -> list[str]:
    ours, limit = _figure(parts, part, name), _figure(parts, "limits", f"limit_{limit_name}")
    if ours is None or limit is None:
        return []
    times = ours.ours.median / limit.ours.median
    share = 1 / times if ours.better == "lower" else times
    return [ours.title, _value(ours.ours, ours.unit), limit.title, _value(limit.ours, limit.unit), f"{share:.0%}"]


def _figure(parts: Mapping[str, Part], part: str, name: str) -> Comparison | None:
    found = parts.get(part)
    return next((one for one in found.comparisons if one.name == name), None) if found else None


OTHERS: dict[str, Callable[[Mapping[str, Part]], str]] = {"headlines": _headlines, "limits-shares": _shares}


if __name__ == "__main__":
    from bench.__main__ import PARTS

    write(RESULTS, list(PARTS))
