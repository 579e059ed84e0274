"""Which failure a message comes from, signed: the attribute REPLAY_ID of what the desk sends again. Pure.

Anybody may publish a message with any attribute, so only an id with the desk's own signature is believed. Even that one
may have been copied onto another message: whoever reads it still compares what came with what was sent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

# 132 bits of the HMAC, as 22 letters: nobody guesses it, and the attribute stays short.
SIGNATURE_LETTERS = 22

# Longer ones are not ours: a store id has some 32 letters, a failure id 19 digits at most.
LONGEST_REPLAY_ID = 200

# No leading zeros: each lineage has one spelling.
_NUMBER = r"(0|[1-9][0-9]{0,18})"
_REPLAY_ID = re.compile(rf"(.+)\.{_NUMBER}\.{_NUMBER}\.{_NUMBER}\.([A-Za-z0-9_-]{{{SIGNATURE_LETTERS}}})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The failure, which time it was sent (1 is the first), and the edit of it that was sent (0 is the original)."""

    failure_id: int
    number: int
    revision: int = 0


class LineageSigner:
    """Of one desk's store: `store_id` and `secret` are its own."""

    def __init__(self, store_id: str, secret: bytes) -> None:
        self._store_id = store_id
        self._secret = secret

    def replay_id(self, lineage: Lineage) -> str:
        told = f"{self._store_id}.{lineage.failure_id}.{lineage.number}.{lineage.revision}"
        return f"{told}.{self._signature(told)}"

    def read(self, replay_id: str) -> Lineage | None:
        """None for what is forged, of another desk, or anything else."""
        if len(replay_id) > LONGEST_REPLAY_ID:
            return None
        found = _REPLAY_ID.fullmatch(replay_id)
        if found is None or found[1] != self._store_id:
            return None
        told = replay_id.rpartition(".")[0]
        if not hmac.compare_digest(self._signature(told), found[5]):
            return None
        return Lineage(int(found[2]), int(found[3]), int(found[4]))

    def _signature(self, told: str) -> str:
        digest = hmac.new(self._secret, told.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode()[:SIGNATURE_LETTERS]
