"""What a benchmark says: figures of one contestant, a comparison of two, and the bar that it must reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal, Self

from bench.generator import Load

Better = Literal["higher", "lower"]

# From this share of the cores on, there was nothing left to go faster with.
FULL = 0.9
# Fewer cores than this, used by others than the server, do not change a figure much.
QUIET_CORES = 0.2


@dataclass(frozen=True, slots=True)
class Bar:
    """What must be reached, all of it: at least this many times as good as the peer, at most or at least this value, at
    most this much above the peer. Without any of them the measure is told and not judged."""

    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    above_peer: float | None = None  # for what is near nothing on both sides, where a ratio would only show noise

    @property
    def judges(self) -> bool:
        return any(part is not None for part in (self.ratio, self.at_most, self.at_least, self.above_peer))

    def text(self, unit: str) -> str:
        parts = []
        if self.at_most is not None:
            parts.append(f"≤ {self.at_most:g} {unit}".rstrip())
        if self.at_least is not None:
            parts.append(f"≥ {self.at_least:g} {unit}".rstrip())
        if self.ratio is not None:
            parts.append(f"≥ {self.ratio:g}x")
        if self.above_peer is not None:
            parts.append(f"≤ peer + {self.above_peer:g} {unit}".rstrip())
        return " and ".join(parts) or "none"

    def met(self, ours: float, peer: float | None, ratio: float | None) -> bool:
        return (
            (self.at_most is None or ours <= self.at_most)
            and (self.at_least is None or ours >= self.at_least)
            and (self.ratio is None or (ratio is not None and ratio >= self.ratio))
            and (self.above_peer is None or (peer is not None and ours <= peer + self.above_peer))
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a round cost, as the median of the rounds; memory is the largest of them. Cores are CPU seconds a second."""

    server_cpu_seconds: float
    server_cores: float
    server_cpu_us_per_message: float
    server_peak_rss_mb: float
    generator_cores: float
    other_cores: float

    @classmethod
    def of(cls, loads: Sequence[Load]) -> Self:
        return cls(
            server_cpu_seconds=median(load.server_cpu_seconds for load in loads),
            server_cores=median(load.server_cpu_seconds / load.seconds for load in loads),
            server_cpu_us_per_message=median(_per_message(load) for load in loads),
            server_peak_rss_mb=max(load.server_peak_rss_mb for load in loads),
            generator_cores=median(load.generator_cpu_seconds / load.seconds for load in loads),
            other_cores=median(_other_cpu_seconds(load) / load.seconds for load in loads),
        )


def _per_message(load: Load) -> float:
    return 1e6 * load.server_cpu_seconds / load.messages if load.messages else 0.0


def _other_cpu_seconds(load: Load) -> float:
    return max(load.machine_cpu_seconds - load.server_cpu_seconds - load.generator_cpu_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One contestant's figure in each round."""

    contestant: str
    values: list[float]
    usage: Usage
    notes: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.values)

    @classmethod
    def of(cls, contestant: str, values: Sequence[float], loads: Sequence[Load], cores: int) -> Self:
        usage = Usage.of(loads)
        return cls(contestant, list(values), usage, [*notes_on_usage(usage, cores), *_notes_on_counts(loads)])

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(raw["contestant"], raw["values"], Usage(**raw["usage"]), raw["notes"])


def notes_on_usage(usage: Usage, cores: int) -> list[str]:
    """Whether the figure is the server's own, or that of what was around it."""
    notes = []
    full = usage.generator_cores + usage.server_cores >= FULL * (cores - usage.other_cores)
    if full and usage.generator_cores > usage.server_cores:
        notes.append("the load generator was the bottleneck")
    elif full and usage.generator_cores >= QUIET_CORES:
        notes.append("no core was idle: without the load generator beside it the server would be faster")
    if usage.other_cores >= QUIET_CORES:
        notes.append(f"other programs used {usage.other_cores:.1f} of {cores} cores")
    return notes


def _notes_on_counts(loads: Sequence[Load]) -> list[str]:
    duplicates = sum(load.duplicates for load in loads)
    return [f"{duplicates} messages came twice"] if duplicates else []


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside a peer, or alone where no peer has the like."""

    name: str
    title: str
    unit: str
    better: Better
    bar: Bar
    ours: Series
    peer: Series | None

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer: above 1 is better, whichever direction that is."""
        if self.peer is None or self.bar.above_peer is not None:
            return None
        return self._times_as_good(self.ours.median, self.peer.median)

    @property
    def ratios_by_round(self) -> list[float]:
        """Neighbours in time, so their spread shows how far the noise of the machine reaches."""
        if self.peer is None or self.ratio is None:
            return []
        pairs = zip(self.ours.values, self.peer.values, strict=True)
        return [self._times_as_good(ours, peer) for ours, peer in pairs]

    def _times_as_good(self, ours: float, peer: float) -> float:
        return ours / peer if self.better == "higher" else peer / ours

    @property
    def difference(self) -> float | None:
        """How much above the peer, where that is what is judged."""
        if self.peer is None or self.bar.above_peer is None:
            return None
        return self.ours.median - self.peer.median

    @property
    def met(self) -> bool:
        return self.bar.met(self.ours.median, self.peer.median if self.peer else None, self.ratio)

    @property
    def verdict(self) -> str:
        """A machine that others use slows a server of many threads more than one of few, so it bends the ratio too."""
        contestants = [self.ours] if self.peer is None else [self.ours, self.peer]
        shared = any(series.usage.other_cores >= QUIET_CORES for series in contestants)
        judged = ("met" if self.met else "missed") if self.bar.judges else "measured"
        return judged + (", on a busy machine" if shared else "")

    @property
    def target(self) -> float | None:
        """The bar as a value of this measure, for plots: the harder one where there are two."""
        targets = [value for value in (self.bar.at_most, self.bar.at_least) if value is not None]
        if self.bar.ratio is not None and self.peer is not None:
            factor = self.bar.ratio if self.better == "higher" else 1 / self.bar.ratio
            targets.append(self.peer.median * factor)
        if self.bar.above_peer is not None and self.peer is not None:
            targets.append(self.peer.median + self.bar.above_peer)
        harder = max if self.better == "higher" else min
        return harder(targets, default=None)

    def to_json(self) -> dict[str, Any]:
        return {**_rounded(asdict(self)), "ratio": _rounded(self.ratio), "met": self.met}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(
            raw["name"],
            raw["title"],
            raw["unit"],
            raw["better"],
            Bar(**raw["bar"]),
            Series.from_json(raw["ours"]),
            Series.from_json(raw["peer"]) if raw["peer"] else None,
        )


def _rounded(value: Any) -> Any:
    """To what a person reads and a later run can be compared with: no clock is better than this."""
    match value:
        case float():
            return round(value, 4)
        case dict():
            return {name: _rounded(inner) for name, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Part:
    """One module's comparisons, with what they were measured on."""

    name: str
    environment: dict[str, str]
    seconds: float
    comparisons: list[Comparison]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "environment": self.environment,
            "seconds": round(self.seconds, 1),
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        comparisons = [Comparison.from_json(comparison) for comparison in raw["comparisons"]]
        return cls(raw["name"], raw["environment"], raw["seconds"], comparisons)
