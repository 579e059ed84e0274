"""How failures leave: each kind after its time, every hour, and never under legal hold."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.failures import FailureStore, Retention
from holdfast.errors import BadInput, HoldfastError
from holdfast.model.timestamps import format_rfc3339

log = logging.getLogger("holdfast.deadletter")

ACTOR = "holdfast:retention"
INTERVAL_SECONDS = 3600.0

# Erased in one transaction, with the entry in the audit trail that says so: what comes in does not wait for long.
STEP = 2000

LONGEST_DAYS = 36_500
_DAY_NS = 24 * 3600 * NANOSECONDS


@dataclass(frozen=True, slots=True)
class Keep:
    """Days since the last change of status. 0 means for ever."""

    retry_success_days: float
    replayed_days: float
    permanent_failure_days: float


class CleanUp:
    def __init__(self, store: FailureStore, clock: Clock, keep: Keep) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.clean_up()
            except HoldfastError as error:
                log.warning("cannot clean up old failures now: %s", error)
            except Exception:
                log.exception("cannot clean up old failures now")
            await self._clock.sleep_until(self._clock.now_ns() + round(INTERVAL_SECONDS * NANOSECONDS))

    async def clean_up(self) -> int:
        """What is past its time by the settings. Gives how many were erased."""
        keep = self._keep
        retention = Retention(
            retry_success_before_ns=self._before_ns(keep.retry_success_days),
            replayed_before_ns=self._before_ns(keep.replayed_days),
            permanent_failure_before_ns=self._before_ns(keep.permanent_failure_days),
        )
        return await self._erase(retention, ACTOR)

    async def clean_up_now(self, days: float, actor: str) -> int:
        """What was mended by a retry or sent again more than `days` ago; what failed for good stays until its time. As
        the SQL function cleanup_old_dlq_messages."""
        if not 0 <= days <= LONGEST_DAYS:
            raise BadInput("days", f"must be from 0 to {LONGEST_DAYS}")
        before_ns = self._clock.now_ns() - round(days * _DAY_NS)
        return await self._erase(Retention(before_ns, before_ns, None), actor)

    async def _erase(self, retention: Retention, actor: str) -> int:
        erased, step = 0, STEP
        while step == STEP:
            step = await self._store.clean_up(retention, self._action(retention, actor), STEP)
            erased += step
        if erased:
            log.info("erased %d old failures", erased)
        return erased

    def _action(self, retention: Retention, actor: str) -> Action:
        """It counts by itself how many there were."""
        bounds = {
            "retry_success": retention.retry_success_before_ns,
            "replayed": retention.replayed_before_ns,
            "permanent_failure": retention.permanent_failure_before_ns,
        }
        before = {status: format_rfc3339(at_ns) for status, at_ns in bounds.items() if at_ns is not None}
        return Action(actor, "failure.clean_up", "failures", {"before": before}, self._clock.now_ns())

    def _before_ns(self, days: float) -> int | None:
        return self._clock.now_ns() - round(days * _DAY_NS) if days else None
