"""Groups of failures, and what people do with them: acknowledge, resolve, reopen, assign, comment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.fingerprints import example_of
from holdfast.deadletter.groups import Comment, Group, GroupFilter, GroupPage, GroupState
from holdfast.deadletter.quotes import HIDDEN
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.selecting import read_time
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput, Conflict, NotFound
from holdfast.model.names import check_subscription, subscription_path

# How far back the counts by hour go, where nobody says: a week of 168 numbers.
DEFAULT_SINCE = "7d"

# Somebody else may be changing the same group just now; more often than this it is not chance.
TRIES = 5


@dataclass(frozen=True, slots=True)
class FoundGroup:
    group: Group
    counts_by_hour: Mapping[int, int]
    comments: Sequence[Comment]


class Grouping:
    """Short ids are in `project`."""

    def __init__(self, store: DeskStore, clock: Clock, project: str) -> None:
        self._store = store
        self._clock = clock
        self._project = project

    # Looking.

    def group_filter(self, states: Sequence[str], given: Mapping[str, str]) -> GroupFilter:
        """As a query names it; what is not there means any."""
        return GroupFilter(
            states=[_state(text) for text in states],
            subscription=self._subscription(given["subscription"]) if "subscription" in given else "",
            reason=given.get("reason", ""),
            assignee=given.get("assignee", ""),
        )

    async def list_groups(self, wanted: GroupFilter, page_size: int, page_token: str = "") -> GroupPage:
        """The last seen first."""
        return await self._store.list_groups(wanted, page_size, page_token)

    async def find(self, fingerprint: str, since: str = DEFAULT_SINCE) -> FoundGroup:
        since_ns = read_time("since", since, self._clock.now_ns())
        return FoundGroup(
            await self._get(fingerprint),
            await self._store.counts_by_hour(fingerprint, since_ns),
            await self._store.comments(fingerprint),
        )

    async def shown(self, group: Group, redaction: Redaction) -> Group:
        """Without what is redacted in its example: made anew of a member's error, since what is left of a value when
        ids and numbers are taken out could not be found any more."""
        if not redaction:
            return group
        for member in (await self._store.list(Selection(fingerprint=group.fingerprint), 1)).failures:
            edits = await self._store.revisions(member.id) if member.revision else ()
            contents = [member.content, *(edit.content for edit in edits)]
            error = redaction.text(member.error_details, *contents)
            return replace(group, example=example_of(replace(member, error_details=error)))
        return replace(group, example=HIDDEN)

    # Acting. `version` is the one that is meant; without it the newest.

    async def acknowledge(self, fingerprint: str, actor: str, version: int | None = None) -> Group:
        return await self._change(
            fingerprint, Group.acknowledge, self._action(actor, "acknowledge", fingerprint), version
        )

    async def resolve(self, fingerprint: str, actor: str, version: int | None = None) -> Group:
        return await self._change(fingerprint, Group.resolve, self._action(actor, "resolve", fingerprint), version)

    async def reopen(self, fingerprint: str, actor: str, version: int | None = None) -> Group:
        return await self._change(fingerprint, Group.reopen, self._action(actor, "reopen", fingerprint), version)

    async def assign(self, fingerprint: str, assignee: str, actor: str, version: int | None = None) -> Group:
        """ "" assigns it to nobody."""
        action = self._action(actor, "assign", fingerprint, assignee=assignee)
        return await self._change(fingerprint, lambda group: group.assign(assignee), action, version)

    async def comment(self, fingerprint: str, text: str, actor: str) -> Comment:
        await self._get(fingerprint)
        comment = Comment(actor, text, self._clock.now_ns())
        await self._store.comment(fingerprint, comment, self._action(actor, "comment", fingerprint))
        return comment

    async def _change(
        self, fingerprint: str, change: Callable[[Group], Group], action: Action, version: int | None
    ) -> Group:
        for _ in range(TRIES):
            group = await self._get(fingerprint)
            if version is not None and version != group.version:
                raise Conflict(f"group {fingerprint} has version {group.version} by now, not {version}")
            changed = change(group)
            if changed == group:
                return group
            if await self._store.save_group(changed, action):
                return await self._get(fingerprint)
        raise Conflict(f"group {fingerprint} is being changed by others: try again")

    async def _get(self, fingerprint: str) -> Group:
        group = await self._store.get_group(fingerprint)
        if group is None:
            raise NotFound(f"there is no group {fingerprint[:64]!r}")
        return group

    def _action(self, actor: str, verb: str, fingerprint: str, **details: str) -> Action:
        return Action(actor, f"group.{verb}", f"groups/{fingerprint}", details, self._clock.now_ns())

    def _subscription(self, text: str) -> str:
        path = subscription_path(self._project, text)
        check_subscription("subscription", path)
        return path


def _state(text: str) -> GroupState:
    try:
        return GroupState(text)
    except ValueError:
        raise BadInput("state", f"must be one of {', '.join(GroupState)}, not {text[:64]!r}") from None
