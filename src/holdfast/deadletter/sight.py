"""Who sees what is redacted: whoever shows the token, and that is written into the audit trail."""

from __future__ import annotations

import hmac

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action, AuditLog
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.errors import PermissionDenied


class Sight:
    """`token` is that of the settings; "" means that nobody has the right."""

    def __init__(self, redaction: Redaction, token: str, audit: AuditLog, clock: Clock) -> None:
        self.redaction = redaction  # of those without the right
        self._token = token
        self._audit = audit
        self._clock = clock

    async def of(self, shown: str | None, actor: str, target: str) -> Redaction:
        """What applies to somebody who shows this token, or none, to look at `target`. A wrong one is refused: an
        answer with parts hidden could pass for all there is."""
        if shown is None:
            return self.redaction
        # Compared as bytes, because text must be ASCII there; and in a time that tells nothing of the token.
        if not self._token or not hmac.compare_digest(shown.encode(errors="replace"), self._token.encode()):
            raise PermissionDenied("Holdfast-Reveal: is not the token that shows what is redacted")
        if self.redaction:
            await self._audit.append(Action(actor, "failure.reveal", target, {}, self._clock.now_ns()))
        return NOTHING_HIDDEN
