"""What the figures mean: in words, and as an exit code. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.cli.load.run import Run
from holdfast.cli.load.tally import Kind

# Where it is busy, or waits for a processor, for this share of the time, the figures are its own, at least in part.
BUSY_SHARE = 0.85
# A shorter run is mostly its start.
TELLING_SECONDS = 0.2
# With a free connection, requests should leave on time. When they do not, the generator got no processor, and it
# matters where that is a good part of the latency that was measured.
LATE_MS = 20.0
LATE_SHARE = 0.2

ABOUT_401 = (
    "The endpoint wants a token (401). `holdfast up` does, because only its own broker may push there. For a load test "
    "start it with HOLDFAST_CONSUMER_AUTH_PUSH=off, or give a token that it accepts with --token-file."
)

_STATUSES = {
    401: "refused: the token is missing or not accepted",
    403: "refused: this token may not push here",
    404: "refused: nothing is at this path; see --url",
    405: "refused: this is no push endpoint; see --url",
    413: "refused: the message is too large",
    503: "not available now: too much pressure, a store that is away, or a bug",
}
_KINDS = {
    Kind.ACCEPTED: "accepted: the message is acked",
    Kind.BACKPRESSURE: "backpressure works: Pub/Sub would retry later",
    Kind.FAILED: "transient failure: too much pressure, too low a retry cap, or a bug",
    Kind.REFUSED: "refused: it is the messages, and sending them again does not help",
}
_NO_ANSWERS = {
    "timeout": "no answer in time: Pub/Sub would send the message again",
    "refused": "nobody takes the connection",
    "closed": "the connection was closed before the answer was whole",
    "tls": "no TLS connection",
    "malformed": "what came back is not HTTP",
    "too_large": "the answer is too large to be one of a push endpoint",
    "unsent": "this machine could not send it: out of connections, ports or memory",
}


def meaning_of_status(status: int, kind: Kind) -> str:
    if 300 <= status < 400:
        return "redirected, which Pub/Sub does not follow; see --url"
    return _STATUSES.get(status) or _KINDS[kind]


def meaning_of_no_answer(kind: str) -> str:
    return _NO_ANSWERS.get(kind, "no answer")


def exit_code(run: Run) -> int:
    """0 when everything was accepted or held back: backpressure is how it should be. 1 for anything else."""
    good = run.tally.kinds[Kind.ACCEPTED] + run.tally.kinds[Kind.BACKPRESSURE]
    return 0 if good and good == run.tally.ended and not run.unsent else 1


@dataclass(frozen=True, slots=True)
class Generator:
    """What the load generator itself had to do."""

    cpu_share: float
    """Of one core."""
    starved_share: float
    """Of the time, while it had something to do and no processor."""
    microseconds_per_request: float
    late_p99_ms: float
    is_the_limit: bool
    can_tell: bool
    """Whether the run was long enough to know that."""


def generator_of(run: Run) -> Generator:
    share = run.cpu_seconds / run.seconds if run.seconds else 0.0
    starved = run.starved_seconds / run.seconds if run.seconds else 0.0
    late = run.late.percentile_ms(0.99)
    each = run.cpu_seconds / run.tally.ended * 1_000_000 if run.tally.ended else 0.0
    too_late = max(LATE_MS, LATE_SHARE * run.tally.all_latencies().percentile_ms(0.99))
    can_tell = run.seconds >= TELLING_SECONDS
    is_the_limit = can_tell and (share + starved >= BUSY_SHARE or late >= too_late)
    return Generator(share, starved, each, late, is_the_limit, can_tell)
