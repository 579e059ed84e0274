"""Exponential backoff between two bounds. Says how long to wait; never waits itself."""

from __future__ import annotations

import random
from collections.abc import Callable

# A wait is longer than its nominal length by up to this share, or shorter where it may not be longer, so that what
# failed together does not return together.
JITTER = 0.1

Spread = Callable[[], float]  # a number from 0 to 1


def backoff_seconds(minimum: float, maximum: float, failures: int, spread: Spread = random.random) -> float:
    """The wait after the `failures`-th failure: minimum, then doubled each time, never above maximum."""
    if failures < 1 or minimum <= 0:
        return 0.0
    # 2**64 times any sane minimum is above any maximum; the bound keeps the power cheap.
    nominal = min(minimum * 2.0 ** min(failures - 1, 64), maximum)
    if nominal < maximum:
        return min(nominal * (1 + JITTER * spread()), maximum)
    return max(nominal * (1 - JITTER * spread()), min(minimum, maximum))
