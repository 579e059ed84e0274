"""What people ask and do: which alerts there are, who was told, silences, and a test of a receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.evaluator import Evaluator
from holdfast.alerts.notify.matching import check_quick, labels_of, parse_matchers
from holdfast.alerts.notify.notification import alert_to_json
from holdfast.alerts.notify.notifier import Notifier
from holdfast.alerts.notify.receiver import Receiver
from holdfast.alerts.notify.silences import Silence
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput
from holdfast.model.timestamps import format_rfc3339

LONGEST_SILENCE_DAYS = 90
MOST_MATCHERS = 20


class Board:
    def __init__(self, evaluator: Evaluator, notifier: Notifier, clock: Clock) -> None:
        self._evaluator = evaluator
        self._notifier = notifier
        self._clock = clock

    def alerts(self) -> list[dict[str, Any]]:
        """Those that fire, then those that are pending; the oldest first."""
        ids = self._notifier.ledger.open_ids()
        found = []
        for subject, state in self._evaluator.states.items():
            alert = self._evaluator.alert_of(subject, state)
            is_firing = state.firing_ns is not None
            told = alert_to_json(alert) | {"state": "firing" if is_firing else "pending"}
            told["silencedUntil"] = self._silenced_until(alert)
            told["told"] = self._told(ids.get(alert.key)) if is_firing else []
            found.append((not is_firing, alert.started_at_ns, told))
        return [told for _, _, told in sorted(found, key=lambda one: one[:2])]

    def _silenced_until(self, alert: Alert) -> str | None:
        labels, now_ns = labels_of(alert), self._clock.now_ns()
        ends = [until for until in (one.until_ns(labels, now_ns) for one in self._notifier.quiet) if until is not None]
        return format_rfc3339(max(ends)) if ends else None

    def _told(self, alert_id: int | None) -> list[str]:
        notices = self._notifier.ledger.notices
        found = [notices.get((name, alert_id)) for name in self._notifier.receivers] if alert_id is not None else []
        return [one.receiver for one in found if one is not None and one.told]

    async def history(self, most: int, before_id: int | None) -> list[tuple[int, dict[str, Any]]]:
        return [(number, alert_to_json(alert)) for number, alert in await self._notifier.history(most, before_id)]

    # Silences.

    def silences(self) -> list[dict[str, Any]]:
        """The newest first."""
        found = sorted(self._notifier.ledger.silences.values(), key=lambda one: -one.id)
        return [self._silence_to_json(one) for one in found]

    async def silence(
        self, match: Sequence[str], starts_ns: int | None, ends_ns: int, author: str, comment: str
    ) -> dict[str, Any]:
        now_ns = self._clock.now_ns()
        starts_ns = now_ns if starts_ns is None else starts_ns
        if not 1 <= len(match) <= MOST_MATCHERS:
            raise BadInput("match", f"must be 1 to {MOST_MATCHERS} conditions; rule=~.+ means all alerts")
        if ends_ns <= max(starts_ns, now_ns):
            raise BadInput("endsAt", "must be later than now, and than its beginning")
        if ends_ns - now_ns > LONGEST_SILENCE_DAYS * 24 * 3600 * NANOSECONDS:
            raise BadInput("endsAt", f"must be within {LONGEST_SILENCE_DAYS} days; change or disable the rule instead")
        try:
            matchers = parse_matchers(match)
            check_quick(matchers)
        except ValueError as error:
            raise BadInput("match", str(error)) from error
        return self._silence_to_json(await self._notifier.silence(matchers, starts_ns, ends_ns, author, comment))

    async def unsilence(self, number: int) -> dict[str, Any]:
        return self._silence_to_json(await self._notifier.unsilence(number))

    def _silence_to_json(self, one: Silence) -> dict[str, Any]:
        return {
            "id": one.id,
            "state": one.state(self._clock.now_ns()),
            "match": [str(matcher) for matcher in one.matchers],
            "startsAt": format_rfc3339(one.starts_ns),
            "endsAt": format_rfc3339(one.ends_ns),
            "author": one.author,
            "comment": one.comment,
            "createdAt": format_rfc3339(one.created_ns),
        }

    # Receivers.

    def receivers(self) -> list[dict[str, Any]]:
        return [self._receiver_to_json(one) for one in self._notifier.receivers.values()]

    def _receiver_to_json(self, one: Receiver) -> dict[str, Any]:
        last = self._notifier.tally.last(one.name)
        return {
            "name": one.name,
            "kind": one.kind,
            "where": one.channel.where,
            "match": [str(matcher) for matcher in one.match],
            "groupBy": [*one.group_by],
            "waiting": self._notifier.waiting(one.name),
            "lastSentAt": None if last.sent_ns is None else format_rfc3339(last.sent_ns),
            "lastFailedAt": None if last.failed_ns is None else format_rfc3339(last.failed_ns),
            "lastError": last.error,
        }

    async def test(self, name: str, actor: str) -> Mapping[str, Any]:
        now_ns = self._clock.now_ns()
        said = f"This is a test by {actor}: nothing is wrong"
        result = await self._notifier.test(name, Alert("Test", Severity.WARNING, {}, said, now_ns))
        return {"receiver": name, "sent": result is None, "error": "" if result is None else result.error}
