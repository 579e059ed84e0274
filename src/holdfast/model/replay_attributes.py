"""The attributes that a message carries when the desk sends it again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.timestamps import parse_rfc3339

# Which failure was sent again, which time it was, and which edit of it: deadletter/lineage.py has its form. The desk
# checks its own signature when the message fails once more. A broker of ours takes each of these once.
REPLAY_ID = "holdfast-replay-id"

# The id of the message that failed first, for people and their logs. Nothing is decided by it.
ORIGINAL_MESSAGE_ID = "holdfast-original-message-id"

# When it was published first, as RFC 3339 text: an old event that is sent again must not pass for a new one.
ORIGINAL_PUBLISH_TIME = "holdfast-original-publish-time"

# With an ordering key: the id of the message in whose place this one comes, where the broker holds the key for it.
IN_PLACE_OF = "holdfast-in-place-of"

# Every name above. None of them belongs to the message as its publisher sent it.
ALL = frozenset({REPLAY_ID, ORIGINAL_MESSAGE_ID, ORIGINAL_PUBLISH_TIME, IN_PLACE_OF})


def first_published_ns(attributes: Mapping[str, str], publish_time_ns: int) -> int:
    """Of a message that is sent again: when it was published first, so that its place in time stays what it was. Never
    later than `publish_time_ns`. Whoever forges it could as well write an old time into a payload."""
    if REPLAY_ID not in attributes or ORIGINAL_PUBLISH_TIME not in attributes:
        return publish_time_ns
    try:
        first = parse_rfc3339(attributes[ORIGINAL_PUBLISH_TIME])
    except (ValueError, OverflowError):
        return publish_time_ns
    return first if 0 < first < publish_time_ns else publish_time_ns
