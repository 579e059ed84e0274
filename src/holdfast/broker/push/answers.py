"""What an endpoint's answer means for the message that was sent."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from holdfast.broker.leases import Failure
from holdfast.broker.told import failure_told
from holdfast.outgoing.answers import Answer, NoAnswer

# The statuses that Cloud Pub/Sub takes as an acknowledgement.
ACKNOWLEDGED = frozenset({102, 200, 201, 202, 204})

# These say that the endpoint is well and the message is not: asking more slowly would not help.
ABOUT_THE_MESSAGE = frozenset({400, 409, 413, 415, 422})

# Pub/Sub's longest backoff; no endpoint can put a message off for longer.
LONGEST_RETRY_AFTER_SECONDS = 600.0

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
    failure = Failure(error=told, status=str(result.status), about_the_message=is_about_the_message(result))
    if strict:
        return failure
    retry_after_seconds = _retry_after(result.headers.get("retry-after", ""), result.headers.get("date", ""), now_ns)
    return failure_told(result.headers, failure, retry_after_seconds)


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
