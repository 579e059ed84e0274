"""Stacks of a profile as a picture: each box is a function, as wide as its share, above the functions that it called.
Hover over a box to read it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from bench.plot import INK

WIDTH = 960
ROW = 17
# Narrower boxes are left out, and letters need some room.
LEAST = 2.0
LETTER = 6.2


@dataclass(slots=True)
class Box:
    """A function that was called from one place, and what it called."""

    samples: int = 0
    called: dict[str, Box] = field(default_factory=dict)

    def add(self, stack: Sequence[str], samples: int) -> None:
        self.samples += samples
        if stack:
            self.called.setdefault(stack[0], Box()).add(stack[1:], samples)


def flame(stacks: Mapping[tuple[str, ...], int], colour: Callable[[str], str]) -> str:
    """`colour` tells a frame's."""
    root = Box()
    for stack, samples in stacks.items():
        root.add(stack, samples)
    boxes = list(_boxes(root, "all", 0.0, WIDTH, 0, colour))
    height = ROW * (1 + max(depth for depth, _ in boxes)) + 4
    drawn = "\n".join(text for _, text in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="ui-monospace, monospace" font-size="10" role="img">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{drawn}\n</svg>\n'
    )


def _boxes(
    box: Box, name: str, left: float, width: float, depth: int, colour: Callable[[str], str]
) -> Iterator[tuple[int, str]]:
    share = width / WIDTH
    shown = name if len(name) * LETTER < width else name[: int(width / LETTER)]
    drawn = (
        f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{left:.1f}" y="{depth * ROW}" '
        f'width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" fill="{colour(name)}"/>'
        f'<text x="{left + 2:.1f}" y="{depth * ROW + 12}" fill="{INK}">{escape(shown)}</text></g>'
    )
    yield depth, drawn
    for called, inner in sorted(box.called.items(), key=lambda one: -one[1].samples):
        wide = width * inner.samples / box.samples
        if wide >= LEAST:
            yield from _boxes(inner, called, left, wide, depth + 1, colour)
        left += wide
