"""What a power cut leaves on a disk: of what was not synced, any part, in any order, torn between sectors."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from holdfast.torture.disk import SECTOR

# Shared memory, which no power cut leaves.
NEVER_KEPT = "-shm"


@dataclass(slots=True)
class Cut:
    sectors_kept: int = 0
    sectors_lost: int = 0

    def __add__(self, other: Cut) -> Cut:
        return Cut(self.sectors_kept + other.sectors_kept, self.sectors_lost + other.sectors_lost)


def cut_power(data: Path, synced: Path, chance: random.Random) -> Cut:
    """Changes the files below `data`, whose process is dead already. `synced` has them as they were last synced."""
    names = {path.relative_to(root) for root in (data, synced) for path in root.rglob("*") if ".db" in path.name}
    total = Cut()
    for name in sorted(names):
        real = data / name
        if real.name.endswith(NEVER_KEPT):
            real.unlink(missing_ok=True)
        else:
            total += _cut(real, synced / name, chance)
    return total


def _cut(real: Path, synced: Path, chance: random.Random) -> Cut:
    if not real.exists():  # deleted, but nobody has synced that
        if chance.random() < 0.5:
            real.write_bytes(synced.read_bytes())
        else:
            synced.unlink()
        return Cut()
    if not synced.exists():  # made, but never synced
        if chance.random() < 0.5:
            real.unlink()
            return Cut()
        synced.write_bytes(b"")
    cut, content = _merged(real.read_bytes(), synced.read_bytes(), chance)
    for path in (real, synced):  # what is there after the power is back is on the disk
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))
            os.fsync(file.fileno())
    return cut


def _merged(new: bytes, old: bytes, chance: random.Random) -> tuple[Cut, bytes]:
    """Each changed sector is the old or the new one: any of them, all of one kind, or the new ones up to some place."""
    share, up_to = chance.choice(((0.0, 0.0), (1.0, 0.0), (chance.random(), 0.0), (0.0, chance.random())))
    size = len(new) if len(new) == len(old) or chance.random() < max(share, up_to) else len(old)
    new, old = new.ljust(size, b"\0")[:size], old.ljust(size, b"\0")[:size]
    merged = bytearray(old)
    changed = [at for at in range(0, size, SECTOR) if new[at : at + SECTOR] != old[at : at + SECTOR]]
    kept = [at for number, at in enumerate(changed) if number < up_to * len(changed) or chance.random() < share]
    for at in kept:
        merged[at : at + SECTOR] = new[at : at + SECTOR]
    return Cut(len(kept), len(changed) - len(kept)), bytes(merged)
