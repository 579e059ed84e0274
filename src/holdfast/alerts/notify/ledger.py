"""What is known of the alerts and of who was told: values, how they change, and the port that keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.notification import Notification
from holdfast.alerts.notify.silences import Silence

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Notice:
    """That a receiver is to hear of an alert. `told`: it knows that it began. It is gone once nothing is to be told."""

    receiver: str
    alert_id: int
    group: str
    told: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts of which a receiver is told together: by `key`, the digest of `labels`. Looked at when it is due."""

    receiver: str
    key: str
    labels: Mapping[str, str]
    due_ns: int
    sent_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """A notification that is on its way, of `groups`: what it says that began or ended is known to the receiver once it
    is sent."""

    notification: Notification
    groups: Sequence[str]
    begun: Sequence[int]
    ended: Sequence[int]
    next_try_ns: int
    failures: int = 0
    error: str = ""

    @property
    def id(self) -> str:
        return self.notification.id

    @property
    def receiver(self) -> str:
        return self.notification.receiver


@dataclass(slots=True)
class Changes:
    """None means: forget it."""

    alerts: dict[int, Alert] = field(default_factory=dict)
    notices: dict[tuple[str, int], Notice | None] = field(default_factory=dict)
    groups: dict[tuple[str, str], Group | None] = field(default_factory=dict)
    sendings: dict[str, Sending | None] = field(default_factory=dict)
    silences: dict[int, Silence | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.alerts or self.notices or self.groups or self.sendings or self.silences)


class Kept(NamedTuple):
    """`alerts` are those that fire, or of whose end somebody has yet to hear."""

    alerts: Mapping[int, Alert]
    notices: Sequence[Notice]
    groups: Sequence[Group]
    sendings: Sequence[Sending]
    silences: Sequence[Silence]
    last_alert_id: int
    last_silence_id: int


class LedgerStore(Protocol):
    """PORT: where it is kept."""

    async def load(self) -> Kept: ...

    async def save(self, changes: Changes) -> None:
        """All of it or nothing, durable at return."""
        ...

    async def history(self, most: int, before_id: int | None = None) -> list[tuple[int, Alert]]:
        """All alerts that began, the newest first, with their ids."""
        ...

    async def forget(self, before_ns: int) -> None:
        """Alerts that ended and silences that were over before that."""
        ...


class Ledger:
    """What the store has, at hand. Changes are saved first and applied after."""

    def __init__(self, kept: Kept) -> None:
        self.alerts = dict(kept.alerts)
        self.notices = {(one.receiver, one.alert_id): one for one in kept.notices}
        self.groups = {(one.receiver, one.key): one for one in kept.groups}
        self.sendings = {one.id: one for one in kept.sendings}
        self.silences = {one.id: one for one in kept.silences}
        self.last_alert_id = kept.last_alert_id
        self.last_silence_id = kept.last_silence_id
        self._members: dict[tuple[str, str], dict[int, None]] = {}
        for notice in kept.notices:
            self._members.setdefault((notice.receiver, notice.group), {})[notice.alert_id] = None

    def apply(self, changes: Changes) -> None:
        self.alerts |= changes.alerts
        self.last_alert_id = max([self.last_alert_id, *changes.alerts])
        self.last_silence_id = max([self.last_silence_id, *changes.silences])
        for key, notice in changes.notices.items():
            self._put_notice(key, notice)
        _put(self.groups, changes.groups)
        _put(self.sendings, changes.sendings)
        _put(self.silences, changes.silences)
        wanted = {alert_id for _, alert_id in self.notices}
        for alert_id in [one for one, alert in self.alerts.items() if alert.ended_at_ns is not None]:
            if alert_id not in wanted:
                del self.alerts[alert_id]

    def _put_notice(self, key: tuple[str, int], notice: Notice | None) -> None:
        receiver, alert_id = key
        before = self.notices.pop(key, None)
        if before is not None:
            members = self._members[receiver, before.group]
            del members[alert_id]
            if not members:
                del self._members[receiver, before.group]
        if notice is not None:
            self.notices[key] = notice
            self._members.setdefault((receiver, notice.group), {})[alert_id] = None

    def open_ids(self) -> dict[str, int]:
        """By the alert's key."""
        return {alert.key: one for one, alert in self.alerts.items() if alert.ended_at_ns is None}

    def open_alerts(self) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.ended_at_ns is None]

    def notices_of(self, receiver: str, group: str) -> Iterator[tuple[Notice, Alert]]:
        for alert_id in self._members.get((receiver, group), ()):
            yield self.notices[receiver, alert_id], self.alerts[alert_id]

    def groups_of(self, receiver: str) -> list[Group]:
        return [group for (name, _), group in self.groups.items() if name == receiver]

    def sendings_of(self, receiver: str) -> list[Sending]:
        return [one for one in self.sendings.values() if one.receiver == receiver]

    def without(self, receivers: Iterable[str]) -> Changes:
        """What is kept for others than these is forgotten."""
        known = set(receivers)
        return Changes(
            notices={key: None for key in self.notices if key[0] not in known},
            groups={key: None for key in self.groups if key[0] not in known},
            sendings={one.id: None for one in self.sendings.values() if one.receiver not in known},
        )

    def all_due(self, now_ns: int) -> Changes:
        """Every group is looked at again."""
        return Changes(groups={key: replace(one, due_ns=min(one.due_ns, now_ns)) for key, one in self.groups.items()})


def _put(known: dict[KeyT, ValueT], changed: Mapping[KeyT, ValueT | None]) -> None:
    for key, value in changed.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
