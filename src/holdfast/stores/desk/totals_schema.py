"""What the tables of totals have in common in both databases.

`failure_totals` has a handful of numbers under the names that metrics tell them by, so that reading them costs the same
with ten failures and with a million. Triggers keep them. `what` is one of:

- `reason`, `recorded`, `settled`, `permanent`: counters. They only ever rise, whatever is erased: failures recorded by
  reason and by subscription, those mended by subscription, and those that became permanent failures.
- `status`, `open`, `group`: how many there are now. Open failures, by subscription, are those in nobody's hands:
  waiting for a retry, or permanent failures of a group that nobody has acknowledged or resolved.

Reasons and subscriptions are anybody's to think of: the first so many have a row of their own, and keep it for good;
all later ones are counted together.
"""

from __future__ import annotations

MOST_REASONS = 100
MOST_SUBSCRIPTIONS = 1000
OTHER = "other"

CLOSED_STATES = "('acknowledged', 'resolved')"
MENDED = "('retry_success', 'replayed')"


def is_open(row: str) -> str:
    """The SQL condition for a row of failed_messages."""
    return f"""({row}.status = 'queued_for_retry' OR ({row}.status = 'permanent_failure' AND NOT EXISTS (
        SELECT 1 FROM failure_groups AS its
        WHERE its.fingerprint = {row}.fingerprint AND its.state IN {CLOSED_STATES})))"""


def _bounded(most: int) -> str:
    """The name of the rows of a ranking that have one of their own."""
    return f"CASE WHEN place <= {most} THEN name ELSE '{OTHER}' END"


# Of what is there already. What was recorded before and erased since is still counted by its group.
FILL = f"""
    INSERT INTO failure_totals (what, name, count)
    SELECT 'reason', {_bounded(MOST_REASONS)}, sum(number) FROM (
        SELECT name, sum(number) AS number, row_number() OVER (ORDER BY sum(number) DESC, name) AS place FROM (
            SELECT failure_reason AS name, count AS number FROM failure_groups
            UNION ALL SELECT failure_reason, 1 FROM failed_messages WHERE fingerprint = ''
        ) AS single GROUP BY name
    ) AS ranked GROUP BY 2;

    INSERT INTO failure_totals (what, name, count)
    SELECT 'recorded', {_bounded(MOST_SUBSCRIPTIONS)}, sum(number) FROM (
        SELECT name, sum(number) AS number, row_number() OVER (ORDER BY name) AS place FROM (
            SELECT subscription AS name, count AS number FROM failure_groups
            UNION ALL SELECT subscription, 1 FROM failed_messages WHERE fingerprint = ''
        ) AS single GROUP BY name
    ) AS ranked GROUP BY 2;

    INSERT INTO failure_totals (what, name, count)
    SELECT 'settled', {_bounded(MOST_SUBSCRIPTIONS)}, sum(number) FROM (
        SELECT subscription AS name, count(*) AS number, row_number() OVER (ORDER BY subscription) AS place
        FROM failed_messages WHERE status IN {MENDED} GROUP BY subscription
    ) AS ranked GROUP BY 2;

    INSERT INTO failure_totals (what, name, count)
    SELECT 'open', {_bounded(MOST_SUBSCRIPTIONS)}, sum(number) FROM (
        SELECT subscription AS name, count(*) AS number, row_number() OVER (ORDER BY subscription) AS place
        FROM failed_messages WHERE {is_open("failed_messages")} GROUP BY subscription
    ) AS ranked GROUP BY 2;

    INSERT INTO failure_totals (what, name, count)
    SELECT 'permanent', '', count(*) FROM failed_messages WHERE status = 'permanent_failure';

    INSERT INTO failure_totals (what, name, count)
    SELECT 'status', status, count(*) FROM failed_messages GROUP BY status;

    INSERT INTO failure_totals (what, name, count)
    SELECT 'group', state, count(*) FROM failure_groups GROUP BY state
"""

INDEX_JOBS = "CREATE INDEX idx_replay_jobs_state ON replay_jobs (state)"
