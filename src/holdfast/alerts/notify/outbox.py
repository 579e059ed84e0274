"""What a receiver is to be told of its groups now, and what is known once it was told. Decides; sends nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.notify.ledger import Changes, Group, Ledger, Notice, Sending
from holdfast.alerts.notify.matching import labels_of
from holdfast.alerts.notify.notification import CHANGE, MOST_LISTED, REMINDER, Notification
from holdfast.alerts.notify.receiver import Receiver, group_key
from holdfast.alerts.notify.silences import Quiet
from holdfast.clock import NANOSECONDS

NewId = Callable[[], str]

_URGENT_FIRST = [Severity.CRITICAL, Severity.WARNING]


def new_id() -> str:
    return f"ntf_{uuid.uuid4().hex}"


@dataclass(slots=True)
class Standing:
    """How the alerts of one group stand with its receiver, by their ids."""

    begun: dict[int, Alert] = field(default_factory=dict)  # it does not know of them yet
    going_on: dict[int, Alert] = field(default_factory=dict)
    ended: dict[int, Alert] = field(default_factory=dict)  # it does not know that they are over
    unseen: dict[int, Alert] = field(default_factory=dict)  # of those that ended: it has never heard of them
    silenced: dict[int, Alert] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)  # they need not be told at all
    silent_until_ns: int | None = None

    @property
    def has_news(self) -> bool:
        return bool(self.begun or self.ended)


def standing(
    notices: Iterable[tuple[Notice, Alert]], quiet: Sequence[Quiet], receiver: Receiver, now_ns: int
) -> Standing:
    found = Standing()
    for notice, alert in notices:
        one = notice.alert_id
        until_ns = _silent_until(alert, quiet, now_ns)
        if alert.ended_at_ns is not None:
            if not receiver.resolved or (not notice.told and until_ns is not None):
                found.done.append(one)
            else:
                found.ended[one] = alert
                if not notice.told:
                    found.unseen[one] = alert
        elif until_ns is not None:
            found.silenced[one] = alert
            found.silent_until_ns = min(until_ns, found.silent_until_ns or until_ns)
        elif notice.told:
            found.going_on[one] = alert
        else:
            found.begun[one] = alert
    return found


def _silent_until(alert: Alert, quiet: Sequence[Quiet], now_ns: int) -> int | None:
    """The last one counts: with several silences it is quiet for as long as one of them lasts."""
    labels = labels_of(alert)
    found = [until for until in (one.until_ns(labels, now_ns) for one in quiet) if until is not None]
    return max(found, default=None)


class Outbox:
    """For one receiver. `changes` of what it decides must be saved before anything is sent."""

    def __init__(self, receiver: Receiver, ledger: Ledger, make_id: NewId = new_id) -> None:
        self._receiver = receiver
        self._ledger = ledger
        self._make_id = make_id

    def key_of(self, alert: Alert) -> str:
        return group_key(self._receiver.group_of(alert))

    def touched(self, group: Group | None, alert: Alert, now_ns: int) -> Group:
        """The group when something of it has changed: others that change soon are told with it."""
        receiver = self._receiver
        due_ns = now_ns + receiver.group_wait * NANOSECONDS
        if group is None:
            labels = receiver.group_of(alert)
            return Group(receiver.name, group_key(labels), labels, due_ns)
        if group.sent_ns is not None:
            due_ns = max(due_ns, group.sent_ns + receiver.group_interval * NANOSECONDS)
        return replace(group, due_ns=min(group.due_ns, due_ns))

    def due(self, now_ns: int) -> list[Group]:
        """The first due first. What is on its way is waited for."""
        busy = {key for sending in self._ledger.sendings_of(self._receiver.name) for key in sending.groups}
        groups = [one for one in self._ledger.groups_of(self._receiver.name) if one.key not in busy]
        return sorted((one for one in groups if one.due_ns <= now_ns), key=lambda one: one.due_ns)

    def idle_changes(self, group: Group, quiet: Sequence[Quiet], now_ns: int) -> Changes | None:
        """None where there is something to tell; else when to look again."""
        stands = self._standing(group, quiet, now_ns)
        if stands.has_news or (stands.going_on and self._repeats_ns(group) <= now_ns):
            return None
        changes = Changes(notices={(group.receiver, one): None for one in stands.done})
        changes.groups[group.receiver, group.key] = self._after(group, stands, now_ns)
        return changes

    def held_back(self, group: Group, quiet: Sequence[Quiet], now_ns: int) -> int:
        """1 where only a silence keeps the receiver from being told."""
        stands = self._standing(group, quiet, now_ns)
        return int(bool(stands.silenced) and not stands.going_on)

    def make(self, groups: Sequence[Group], quiet: Sequence[Quiet], now_ns: int) -> tuple[Sending, Changes]:
        """One notification of all of them."""
        stands = [self._standing(group, quiet, now_ns) for group in groups]
        begun, going_on = _joined(one.begun for one in stands), _joined(one.going_on for one in stands)
        ended, unseen = _joined(one.ended for one in stands), _joined(one.unseen for one in stands)
        firing = [*_sorted(begun), *_sorted(going_on)]
        only = groups[0] if len(groups) == 1 else None
        notification = Notification(
            self._make_id(),
            self._receiver.name,
            CHANGE if begun or ended else REMINDER,
            only.key if only else group_key({}),
            only.labels if only else {},
            len(firing),
            len(ended),
            [*firing, *_sorted(ended)][:MOST_LISTED],
            now_ns,
            opens=bool(begun or unseen),
        )
        sending = Sending(notification, [one.key for one in groups], [*begun], [*ended], now_ns)
        done = {(self._receiver.name, one): None for stand in stands for one in stand.done}
        return sending, Changes(notices={**done}, sendings={sending.id: sending})

    def sent(self, sending: Sending, quiet: Sequence[Quiet], now_ns: int) -> Changes:
        """Nothing of it needs to be told any more."""
        name = self._receiver.name
        changes = Changes(sendings={sending.id: None})
        known = self._ledger.notices
        for one in sending.begun:
            if (name, one) in known:
                changes.notices[name, one] = replace(known[name, one], told=True)
        changes.notices |= {(name, one): None for one in sending.ended}
        for key in sending.groups:
            group = self._ledger.groups.get((name, key))
            if group is not None:
                group = replace(group, sent_ns=now_ns)
                left = [
                    (changes.notices.get((name, notice.alert_id), notice), alert)
                    for notice, alert in self._ledger.notices_of(name, key)
                ]
                stands = standing([(notice, alert) for notice, alert in left if notice], quiet, self._receiver, now_ns)
                changes.groups[name, key] = self._after(group, stands, now_ns)
        return changes

    def _standing(self, group: Group, quiet: Sequence[Quiet], now_ns: int) -> Standing:
        return standing(self._ledger.notices_of(group.receiver, group.key), quiet, self._receiver, now_ns)

    def _repeats_ns(self, group: Group) -> int:
        return (group.sent_ns or 0) + self._receiver.repeat * NANOSECONDS

    def _after(self, group: Group, stands: Standing, now_ns: int) -> Group | None:
        """When to look at it again. An empty one is kept for an interval: what comes back at once is no new group."""
        interval_ns = (group.sent_ns or 0) + self._receiver.group_interval * NANOSECONDS
        due: list[int] = []
        if stands.has_news:
            due.append(max(interval_ns, now_ns))
        if stands.going_on:
            due.append(self._repeats_ns(group))
        if stands.silent_until_ns is not None:
            due.append(stands.silent_until_ns)
        if not due and interval_ns > now_ns:
            due.append(interval_ns)
        return replace(group, due_ns=min(due)) if due else None


def _joined(found: Iterable[dict[int, Alert]]) -> dict[int, Alert]:
    return {one: alert for some in found for one, alert in some.items()}


def _sorted(alerts: dict[int, Alert]) -> list[Alert]:
    """The most urgent first, then in the order in which they began."""
    return sorted(alerts.values(), key=lambda alert: (_URGENT_FIRST.index(alert.severity), alert.started_at_ns))
