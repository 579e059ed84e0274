"""How the cost of a message grows: with how many there are, with their size, with subscriptions, and with a backlog."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.figures import Bar, Comparison
from bench.generator import Load
from bench.peers import holdfast_sqlite
from bench.plot import FAINT, INK, OURS
from bench.session import Contestant, Session


@dataclass(frozen=True, slots=True)
class Family:
    """One thing that grows. `flags` tell the generator what each size means. What must not cost more per message is
    judged beside the smallest size, in the same run."""

    name: str
    title: str
    command: str
    flags: Mapping[int, Mapping[str, int]]
    bar: Bar


FAMILIES = (
    Family(
        "messages",
        "publish to ack, messages",
        "stream",
        {count: {"messages": count} for count in (50_000, 150_000, 500_000)},
        Bar(ratio=0.8),
    ),
    Family(
        "bytes",
        "publish to ack, bytes in each",
        "stream",
        {
            64: {"messages": 50_000, "size": 64},
            1_000: {"messages": 50_000, "size": 1_000},
            10_000: {"messages": 20_000, "size": 10_000},
            100_000: {"messages": 2_000, "size": 100_000, "batch": 20},
        },
        Bar(),
    ),
    Family(
        "subscriptions",
        "publish to ack, subscriptions",
        "stream",
        {count: {"messages": 96_000 // count, "subscriptions": count} for count in (1, 4, 16, 64)},
        Bar(ratio=0.8),
    ),
    Family(
        "backlog",
        "delivery to ack, messages that wait",
        "drain",
        {count: {"messages": count} for count in (50_000, 150_000, 500_000)},
        Bar(ratio=0.5),  # the cache does not hold the longest ones: they are read from the file
    ),
)


def run(session: Session) -> list[Comparison]:
    with holdfast_sqlite(session.scratch) as server:
        found: list[Comparison] = []
        for family in FAMILIES:
            contestants = [
                Contestant(server, family.command, dict(flags), called=f"{size:,}")
                for size, flags in family.flags.items()
            ]
            found += _compared(session, family, contestants)
        return found


def _compared(session: Session, family: Family, contestants: Sequence[Contestant]) -> list[Comparison]:
    loads = session.compete(family.title, contestants, warm_up=contestants[:1])
    series = [session.series(one, own, _cost) for one, own in zip(contestants, loads, strict=True)]
    smallest = series[0]
    return [
        Comparison(
            f"growth_{family.name}_{size}",
            f"{family.title}: {size:,}",
            "µs/msg",
            "lower",
            Bar() if one is smallest else family.bar,
            one,
            None if one is smallest else smallest,
        )
        for size, one in zip(family.flags, series, strict=True)
    ]


def _cost(load: Load) -> float:
    """Of the server's processor time, for one delivery."""
    return 1e6 * load.server_cpu_seconds / load.messages


# Lines, one plot for each family: what is flat costs the same at any size.

WIDTH, HEIGHT = 380, 210
LEFT, RIGHT, TOP, BOTTOM = 36, 36, 46, 34


def draw(comparisons: Sequence[Comparison]) -> str:
    costs = {one.name: one.ours.median for one in comparisons}
    plots = []
    for number, family in enumerate(FAMILIES):
        points = [(size, costs[f"growth_{family.name}_{size}"]) for size in family.flags]
        x, y = number % 2 * WIDTH, number // 2 * HEIGHT
        plots.append(f'<g transform="translate({x} {y})">\n{_plot(family.title, points)}\n</g>')
    width, height = 2 * WIDTH, math.ceil(len(FAMILIES) / 2) * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(plots) + "\n</svg>\n"
    )


def _plot(title: str, points: Sequence[tuple[int, float]]) -> str:
    """Sizes on a logarithmic scale, microseconds from 0 up."""
    first, last = math.log(points[0][0]), math.log(points[-1][0])
    most = max(cost for _, cost in points) * 1.15
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(size: int, cost: float) -> tuple[float, float]:
        return LEFT + width * (math.log(size) - first) / (last - first), TOP + height * (1 - cost / most)

    places = [place(size, cost) for size, cost in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    unit = f'<tspan fill="{FAINT}" font-weight="400">, µs of CPU each</tspan>'
    parts = [
        f'<text x="10" y="18" fill="{INK}" font-weight="600">{escape(title)}{unit}</text>',
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{TOP + height}" y2="{TOP + height}" stroke="{FAINT}"/>',
        f'<polyline points="{line}" fill="none" stroke="{OURS}" stroke-width="2"/>',
    ]
    for (size, cost), (x, y) in zip(points, places, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{OURS}"/>')
        parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" fill="{INK}" text-anchor="middle">{cost:.1f}</text>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 14}" fill="{FAINT}" text-anchor="middle">{size:,}</text>')
    return "\n".join(parts)
