"""Failed messages in memory, for tests and `--memory`. Nothing survives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from holdfast.deadletter.failures import Filter, Page
from holdfast.deadletter.page_tokens import last_id_given, token_after
from holdfast.model.failed_message import FailedMessage, FailureStatus, bounded_error_details


class MemoryFailureStore:
    def __init__(self) -> None:
        self._by_id: dict[int, FailedMessage] = {}  # in the order of ids, because ids only grow
        self._keys: set[tuple[str, str, str]] = set()
        self._last_id = 0

    async def record(self, failure: FailedMessage) -> bool:
        key = failure.key
        if key in self._keys:
            return False
        self._keys.add(key)
        self._last_id += 1
        self._by_id[self._last_id] = replace(
            failure,
            id=self._last_id,
            error_details=bounded_error_details(failure.error_details),
            attributes=dict(failure.attributes),  # the caller may go on to change its own
        )
        return True

    async def get(self, failure_id: int) -> FailedMessage | None:
        return self._by_id.get(failure_id)

    async def list(self, wanted: Filter, page_size: int, page_token: str = "") -> Page:
        last_given = last_id_given(page_token)
        matching = (
            failure
            for failure in reversed(self._by_id.values())
            if failure.id < last_given and _matches(failure, wanted)
        )
        found = [*islice(matching, page_size + 1)]
        failures = found[:page_size]
        return Page(failures, token_after(failures[-1].id) if len(found) > page_size else "")

    async def count_by_status(self) -> Mapping[FailureStatus, int]:
        counts = dict.fromkeys(FailureStatus, 0)
        for failure in self._by_id.values():
            counts[failure.status] += 1
        return counts

    async def close(self) -> None:
        """Nothing to do: what was recorded stays readable."""


def _matches(failure: FailedMessage, wanted: Filter) -> bool:
    return (
        (wanted.status is None or failure.status is wanted.status)
        and (not wanted.failure_reason or failure.failure_reason == wanted.failure_reason)
        and (not wanted.subscription or failure.subscription == wanted.subscription)
    )
