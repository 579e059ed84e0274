"""What all parts of one run share: the generator, a scratch directory, and how rounds are interleaved."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import procfs
from bench.figures import Series
from bench.generator import Generator, Load, LoadFailed
from bench.peers import Server

# Of these, a message that does not arrive is a fault, and no rate makes up for it.
MUST_BE_COMPLETE = {"stream", "push", "fanout", "refuse", "consume"}


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server and what it is given to do. Counts may differ between contestants where their speeds do by far: a rate
    is a rate, and a round should take seconds for each."""

    server: Server
    command: str
    flags: dict[str, int] = field(default_factory=dict)
    limit_seconds: int = 60
    called: str = ""  # where one server competes with itself

    @property
    def name(self) -> str:
        return self.called or self.server.name


class Session:
    """Data lies beside the benchmarks, not in the system's temporary directory, which is often in memory: there an
    fsync would cost nothing."""

    def __init__(self, generator: Generator, scratch: Path, rounds: int) -> None:
        self.rounds = rounds
        self.generator = generator
        self._parent = scratch
        self.scratch = scratch

    def __enter__(self) -> Self:
        self._parent.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(dir=self._parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def compete(self, what: str, contestants: Sequence[Contestant]) -> list[list[Load]]:
        """Each contestant's loads, one for each round. One unmeasured round first: caches fill and compilers wake."""
        loads: list[list[Load]] = [[] for _ in contestants]
        for contestant in contestants:
            self.run(contestant)
        for number in range(self.rounds):
            indices = list(range(len(contestants)))
            # Every other round the other way round, so that nobody always comes after the same one.
            for index in indices if number % 2 == 0 else reversed(indices):
                load = self.run(contestants[index])
                loads[index].append(load)
                print(f"   {what}, round {number + 1}: {contestants[index].name} {_short(load)}", flush=True)
        return loads

    def run(self, contestant: Contestant) -> Load:
        server = contestant.server
        procfs.forget_peak_rss(server.pid)
        helpers = server.helpers_cpu_seconds
        load = self.generator.run(
            contestant.command,
            server.port,
            server.pid,
            limit_seconds=contestant.limit_seconds,
            **contestant.flags,
        )
        load = replace(load, server_cpu_seconds=load.server_cpu_seconds + server.helpers_cpu_seconds - helpers)
        if contestant.command in MUST_BE_COMPLETE and not load.complete:
            raise LoadFailed(f"{server.name}: only {load.messages} messages arrived in {load.seconds:.0f} s")
        server.wait_until_idle()
        return load

    def series(self, contestant: Contestant, loads: Sequence[Load], figure: Callable[[Load], float]) -> Series:
        return Series.of(contestant.name, [figure(load) for load in loads], loads, procfs.cores())


def _short(load: Load) -> str:
    words = [f"{load.per_second:,.0f} msg/s"]
    if load.p50_ms is not None:
        words.append(f"p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms ({load.messages} messages)")
    if load.fairness_at_half is not None:
        words.append(f"slowest {load.slowest_over_median:.2f} x the median, fairness {load.fairness_at_half:.3f}")
    return ", ".join(words)
