"""PORT: failures that went wrong in the same way, and what people say of them. One contract suite
(holdfast.testing.contracts.groups) holds for all backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from holdfast.deadletter.audit import Action
from holdfast.errors import FailedPrecondition
from holdfast.model.failed_message import FailureClass


class GroupState(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    REOPENED = "reopened"  # it was resolved, and has returned


@dataclass(frozen=True, slots=True)
class Group:
    """`count` is of all that were ever recorded; `waiting` is of those that are permanent failures now. `example` is
    the normalised text that its members share."""

    fingerprint: str
    subscription: str
    failure_reason: str
    failure_class: FailureClass
    example: str
    first_seen_ns: int
    last_seen_ns: int
    count: int = 0
    waiting: int = 0
    state: GroupState = GroupState.OPEN
    assignee: str = ""
    version: int = 1

    def acknowledge(self) -> Group:
        if self.state is GroupState.RESOLVED:
            raise FailedPrecondition(f"group {self.fingerprint} is resolved: reopen it first")
        return replace(self, state=GroupState.ACKNOWLEDGED)

    def resolve(self) -> Group:
        return replace(self, state=GroupState.RESOLVED)

    def reopen(self) -> Group:
        if self.state in (GroupState.OPEN, GroupState.REOPENED):
            raise FailedPrecondition(f"group {self.fingerprint} is {self.state} already")
        return replace(self, state=GroupState.OPEN)

    def assign(self, assignee: str) -> Group:
        """ "" assigns it to nobody."""
        return replace(self, assignee=assignee)


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Empty means any."""

    states: Sequence[GroupState] = ()
    subscription: str = ""
    reason: str = ""
    assignee: str = ""


@dataclass(frozen=True, slots=True)
class GroupPage:
    groups: Sequence[Group]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class Comment:
    author: str
    text: str
    created_at_ns: int


class GroupStore(Protocol):
    async def list_groups(self, wanted: GroupFilter, page_size: int, page_token: str = "") -> GroupPage:
        """The last seen first."""
        ...

    async def get_group(self, fingerprint: str) -> Group | None: ...

    async def save_group(self, group: Group, action: Action) -> bool:
        """Keeps state and assignee; False when the group has another `version` by now. A failure that comes in changes
        the version only where it opens the group again."""
        ...

    async def comment(self, fingerprint: str, comment: Comment, action: Action) -> None: ...

    async def comments(self, fingerprint: str) -> Sequence[Comment]:
        """Oldest first."""
        ...

    async def counts_by_hour(self, fingerprint: str, since_ns: int) -> Mapping[int, int]:
        """How many came in each hour, by its beginning in nanoseconds since 1970; hours without any are left out."""
        ...
