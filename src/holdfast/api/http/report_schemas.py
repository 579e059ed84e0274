"""What the statistics look like in an answer, as JSON Schema: deadletter/presentation.py makes them."""

from __future__ import annotations

from holdfast.api.http.describing import boolean, integer, list_of, map_of, number, or_null, record, text, time

_REASON = record(
    {
        "reason": text(),
        "count": integer(),
        "share": number("Of all failures of the time"),
        "averageRetries": number(),
        "recovered": integer("Ended as retry_success or replayed"),
        "successRate": number("Share of its failures that recovered"),
    },
    title="ReasonStatistics",
)

_PROCESSED = record(
    {
        "by": text("Who counts"),
        "since": or_null(time("When the count began")),
        "total": integer("Messages that succeeded or failed since then"),
        "failed": integer("Failures recorded since then"),
        "failureRate": or_null(number()),
        "lost": integer("Failures erased since then, unresolved"),
    },
    title="Processed",
)

_PROMISE = record(
    {
        "name": text(),
        "target": number(),
        "moreIsBetter": boolean(),
        "unit": text("share, seconds or messages"),
        "actual": or_null(number("null where nobody knows")),
        "met": or_null(boolean()),
    },
    title="Promise",
)

REPORT = record(
    {
        "since": or_null(time()),
        "until": or_null(time()),
        "failed": integer("Failures recorded in that time and still stored"),
        "byStatus": map_of(integer(), "Of those"),
        "byReason": list_of(_REASON, "The most frequent first"),
        "retries": record(
            {
                "ended": integer("Failures whose automatic retries have ended"),
                "succeeded": integer(),
                "successRate": or_null(number()),
                "averageBeforeSuccess": or_null(number("Retries of those that succeeded")),
            }
        ),
        "medianRecoverySeconds": or_null(number("From record to recovery")),
        "medianDetectionSeconds": or_null(number("From the failed delivery to its record")),
        "p95DetectionSeconds": or_null(number()),
        "reviewQueue": integer("Permanent failures that wait for a person now"),
        "largestQueue": integer("The most failures that waited at once in that time"),
        "lost": integer("Failures erased since then, unresolved"),
        "lossRate": or_null(number()),
        "processed": {
            "anyOf": [_PROCESSED, {"type": "null"}],
            "description": "null where nobody in this process counts",
        },
        "sla": list_of(_PROMISE),
    },
    title="Report",
)
