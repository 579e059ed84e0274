"""What a process that is not the broker asks of it, to know that it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast.api.http.health import Check
from holdfast.consumer.transport import Transport
from holdfast.errors import NotFound
from holdfast.model.names import short_id, topic_path

# No such topic is ever made: that there is none is an answer.
ASKED_FOR = "holdfast-readiness"


def broker_check(transport: Transport, project: str) -> Check:
    async def check() -> None:
        with suppress(NotFound):
            await transport.check(topic_path(project, ASKED_FOR))

    return check


def pull_checks(transport: Callable[[], Transport], paths: Sequence[str]) -> Mapping[str, Check]:
    """One for each subscription that is pulled from: it may also have been deleted."""

    def check_of(path: str) -> Check:
        async def check() -> None:
            await transport().check(path)

        return check

    return {f"subscription {short_id(path)}": check_of(path) for path in paths}
