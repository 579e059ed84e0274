"""What a subscriber says of a failed delivery, in headers of its answer or of its call: see model/push_headers.py."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from holdfast.broker.leases import Failure
from holdfast.model import push_headers
from holdfast.outgoing.answers import printable

# What a subscriber may say of a failure; the dead-letter attribute holds 1,024 bytes.
LONGEST_ERROR = 1024


def failure_told(headers: Mapping[str, str], otherwise: Failure, retry_after_seconds: float | None = None) -> Failure:
    """Names are in lower case. What the headers leave out is as in `otherwise`."""
    return Failure(
        error=_text(headers, push_headers.ERROR) or otherwise.error,
        status=otherwise.status,
        reason=_text(headers, push_headers.FAILURE_REASON),
        about_the_message=otherwise.about_the_message,
        dead_letter_now=headers.get(push_headers.DEAD_LETTER.lower(), "").lower() == "now",
        retry_after_seconds=retry_after_seconds,
    )


def _text(headers: Mapping[str, str], name: str) -> str:
    """Percent-encoded. Cut first: decoding costs, and the text is the subscriber's to choose."""
    return printable(unquote(headers.get(name.lower(), "")[: 3 * LONGEST_ERROR]), LONGEST_ERROR)
