"""What is published, made from the seed alone: the same seed gives the same messages, whatever happens to them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KEYS = 6
LARGEST_BATCH = 4

POISON = 0.02
FLAKY = 0.08
MOST_FLAKY = 2  # attempts that fail
LONGEST_PADDING = 2000


@dataclass(frozen=True, slots=True)
class Planned:
    """`name` is the event's own id. `n` counts within its ordering key, from 1."""

    key: str
    n: int
    poison: bool
    flaky: int
    padding: int

    @property
    def name(self) -> str:
        return name_of(self.key, self.n)

    def data(self) -> bytes:
        event = {
            "eventId": self.name,
            "name": self.name,
            "key": self.key,
            "n": self.n,
            "poison": self.poison,
            "flaky": self.flaky,
            "padding": "." * self.padding,
        }
        return json.dumps(event).encode()


def name_of(key: str, n: int) -> str:
    return f"{key}-{n}"


def keys() -> Sequence[str]:
    return [f"k{number}" for number in range(KEYS)]


def batches(seed: int, key: str) -> Iterator[tuple[float, Sequence[Planned]]]:
    """Without an end: how long to wait, then what to publish in one request."""
    chance = random.Random(f"{seed} {key}")
    n = 0
    while True:
        batch = []
        for _ in range(chance.randint(1, LARGEST_BATCH)):
            n += 1
            batch.append(_planned(key, n, chance))
        yield chance.expovariate(4.0), batch


def _planned(key: str, n: int, chance: random.Random) -> Planned:
    poison = chance.random() < POISON
    flaky = chance.randint(1, MOST_FLAKY) if chance.random() < FLAKY else 0
    return Planned(key, n, poison, flaky, chance.randrange(LONGEST_PADDING))


def whim(seed: int, *about: object) -> float:
    """From 0 to 1: what a client does with a delivery, by what it is and not by when it comes."""
    return random.Random(f"{seed} {about}").random()
