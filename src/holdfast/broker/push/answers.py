"""What an endpoint's answer means for the message that was sent."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from holdfast.broker.leases import Failure
from holdfast.model import push_headers
from holdfast.outgoing.answers import Answer, NoAnswer, printable

# The statuses that Cloud Pub/Sub takes as an acknowledgement.
ACKNOWLEDGED = frozenset({102, 200, 201, 202, 204})

# These say that the endpoint is well and the message is not: asking more slowly would not help.
ABOUT_THE_MESSAGE = frozenset({400, 409, 413, 415, 422})

# Pub/Sub's longest backoff; no endpoint can put a message off for longer.
LONGEST_RETRY_AFTER_SECONDS = 600.0

# What an endpoint may say of a failure; the dead-letter attribute holds 1,024 bytes.
LONGEST_ERROR = 1024

STOPPED = Failure(error="the broker stopped before an answer came", status="stopped")


def is_acknowledged(result: Answer | NoAnswer) -> bool:
    return isinstance(result, Answer) and result.status in ACKNOWLEDGED


def is_about_the_message(result: Answer | NoAnswer) -> bool:
    return isinstance(result, Answer) and result.status in ABOUT_THE_MESSAGE


def is_blocked(result: Answer | NoAnswer) -> bool:
    """By our own address guard."""
    return isinstance(result, NoAnswer) and result.kind == "blocked"


def is_unsent(result: Answer | NoAnswer) -> bool:
    """Nothing left this machine, and not because of the endpoint."""
    return isinstance(result, NoAnswer) and result.kind in ("blocked", "unsent")


def result_name(result: Answer | NoAnswer) -> str:
    """One of a few words, for metrics."""
    if isinstance(result, NoAnswer):
        return result.kind
    if result.status in ACKNOWLEDGED:
        return "acknowledged"
    return f"status_{result.status // 100}xx" if 200 <= result.status < 600 else "status_other"


def failure_of(result: Answer | NoAnswer, *, strict: bool, now_ns: int) -> Failure:
    if isinstance(result, NoAnswer):
        return Failure(error=result.error, status=result.kind)
    told = f"the endpoint answered {result.status}"
    if strict:
        return Failure(error=told, status=str(result.status))
    headers = result.headers
    return Failure(
        error=_told(headers, push_headers.ERROR) or told,
        status=str(result.status),
        reason=_told(headers, push_headers.FAILURE_REASON),
        dead_letter_now=headers.get(push_headers.DEAD_LETTER.lower(), "").lower() == "now",
        retry_after_seconds=_retry_after(headers.get("retry-after", ""), headers.get("date", ""), now_ns),
    )


def _told(headers: Mapping[str, str], name: str) -> str:
    """Percent-encoded. Cut first: decoding costs, and the text is the endpoint's to choose."""
    return printable(unquote(headers.get(name.lower(), "")[: 3 * LONGEST_ERROR]), LONGEST_ERROR)


def _retry_after(value: str, date: str, now_ns: int) -> float | None:
    """Seconds, or a date. A date is compared with the answer's own, so that two clocks need not agree."""
    if value.isascii() and value.isdigit():
        seconds = float(value[:9])
    else:
        then = _http_date(value)
        now = _http_date(date) or now_ns / 1e9
        if then is None:
            return None
        seconds = then - now
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_SECONDS)


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
