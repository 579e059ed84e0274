"""Messages that were published together, as one value in the database: a hundred rows would cost ten times as much.

Four arrays: the distance of each sequence from the first one, the length of each body, each publish time, and the
bodies themselves, one behind the other.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from holdfast.broker.log import StoredMessage


def encode_block(messages: Sequence[StoredMessage]) -> bytes:
    """Raises ValueError when the sequences do not rise."""
    sequences, times, bodies = zip(*messages, strict=True)
    first, count = sequences[0], len(messages)
    distances: Sequence[int] = range(count)
    if sequences != tuple(range(first, first + count)):  # not what the broker sends, but allowed
        distances = [sequence - first for sequence in sequences]
        if distances != sorted(set(distances)):
            raise ValueError("sequences must rise")
    head = struct.pack(f"<{count}I{count}I{count}q", *distances, *map(len, bodies), *times)
    return head + b"".join(bodies)


def decode_block(first: int, count: int, block: bytes) -> list[StoredMessage]:
    head = struct.Struct(f"<{count}I{count}I{count}q")
    numbers = head.unpack_from(block)
    ends = itertools.accumulate(numbers[count : 2 * count], initial=head.size)
    return [
        StoredMessage(first + distance, time_ns, block[start:end])
        for distance, time_ns, (start, end) in zip(
            numbers[:count], numbers[2 * count :], itertools.pairwise(ends), strict=True
        )
    ]
