"""Which subscriptions the desk reads: those that are named after a dead-letter topic, and those it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from holdfast.consumer.transport import Transport
from holdfast.errors import HoldfastError, Misconfigured
from holdfast.model.names import DEAD_LETTER_SUFFIX, DESK_SUFFIX, project_of, short_id, subscription_path
from holdfast.model.resources import Subscription

log = logging.getLogger("holdfast.deadletter")


class Sources:
    """Of `project`, a full path. `always` are read whatever the broker lists, and `if_unlisted` when it does not let us
    list; both are full paths. `make` gives the desk's subscription, by its name and its topic, for a dead-letter topic
    that has none; without it none are created."""

    def __init__(
        self,
        transport: Transport,
        project: str,
        always: Sequence[str] = (),
        if_unlisted: Sequence[str] = (),
        make: Callable[[str, str], Subscription] | None = None,
    ) -> None:
        self._transport = transport
        self._project = project
        self._always = always
        self._if_unlisted = if_unlisted
        self._make = make

    async def find(self) -> Collection[str]:
        """Full paths of those that there are now."""
        try:
            return {*self._always, *await self._listed()}
        except Misconfigured as error:  # no right to it, which is no hiccup
            log.warning("cannot list the subscriptions of %s, so only known ones are read: %s", self._project, error)
            return {*self._always, *self._if_unlisted}

    async def _listed(self) -> Collection[str]:
        listed = await self._transport.list_subscriptions(self._project)
        found = {name for name in listed if name.endswith(DESK_SUFFIX)}
        if self._make is not None:
            for topic in await self._transport.list_topics(self._project):
                name = _desk_subscription(topic)
                if name and name not in found and await self._was_made(self._make(name, topic)):
                    found.add(name)
        return found

    async def _was_made(self, subscription: Subscription) -> bool:
        """One that cannot be made does not keep the others from being read."""
        try:
            await self._transport.ensure_subscription(subscription)
        except HoldfastError as error:
            log.warning("cannot create %s: %s", subscription.name, error)
            return False
        return True


def _desk_subscription(topic: str) -> str:
    """ "" where it is no dead-letter topic."""
    if not topic.endswith(DEAD_LETTER_SUFFIX):
        return ""
    return subscription_path(project_of(topic), short_id(topic).removesuffix(DEAD_LETTER_SUFFIX) + DESK_SUFFIX)
