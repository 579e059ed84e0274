"""The attributes that a message carries when the desk sends it again. Names only."""

from __future__ import annotations

# Which failure was sent again, which time it was, and which edit of it: deadletter/lineage.py has its form. The desk
# checks its own signature when the message fails once more. A broker of ours takes each of these once.
REPLAY_ID = "holdfast-replay-id"

# The id of the message that failed first, for people and their logs. Nothing is decided by it.
ORIGINAL_MESSAGE_ID = "holdfast-original-message-id"

# With an ordering key: the id of the message in whose place this one comes, where the broker holds the key for it.
IN_PLACE_OF = "holdfast-in-place-of"

# Every name above. None of them belongs to the message as its publisher sent it.
ALL = frozenset({REPLAY_ID, ORIGINAL_MESSAGE_ID, IN_PLACE_OF})
