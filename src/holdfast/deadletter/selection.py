"""Which failures are meant: by the API, the command line, a replay job. Values only; selecting is the store's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model.failed_message import FailureStatus


def path_parts(path: str) -> list[str]:
    r"""The keys of `order.lines.0.sku`. `\.` is a dot within a key, and `\\` a backslash, as it is at
    the end."""
    parts, is_escaped = [""], False
    for character in path:
        if character == "\\" and not is_escaped:
            is_escaped = True
            continue
        if character == "." and not is_escaped:
            parts.append("")
        else:
            parts[-1] += character
        is_escaped = False
    if is_escaped:
        parts[-1] += "\\"
    return parts


@dataclass(frozen=True, slots=True)
class Selection:
    """All that is given must hold; empty means any. `subscription` and `topic` are full paths. Times are nanoseconds
    since 1970: `since_ns` counts, `until_ns` does not. Attempts are deliveries.

    `attributes` must be there with just these values. `payload` maps a path within a JSON payload, such as
    `order.lines.0.sku`, to the text of the value there: `17`, `true`, `null`, or a string without its quotes. `text` is
    found, in upper or lower case, in the error or in a payload that is text. `origin_id` names the first failure of a
    message that was sent again and failed again.
    """

    ids: Sequence[int] = ()
    statuses: Sequence[FailureStatus] = ()
    reason: str = ""
    subscription: str = ""
    topic: str = ""
    fingerprint: str = ""
    message_id: str = ""
    since_ns: int | None = None
    until_ns: int | None = None
    fewest_attempts: int | None = None
    most_attempts: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    payload: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    legal_hold: bool | None = None
    replay_id: int | None = None
    origin_id: int | None = None
