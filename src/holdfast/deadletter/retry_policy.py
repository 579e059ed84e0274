"""What is done about a failure by itself, by its reason: one table, edited as [[desk.retry]] in holdfast.toml.

    [[desk.retry]]
    reason = "API_RATE_LIMIT_EXCEEDED"
    delays = [60, 60, 60]       # seconds before each automatic retry; [] leaves it to a person
    class = "transient"         # poison, transient, misconfigured or unknown

    [[desk.retry]]
    reason = "DUPLICATE_MESSAGE"
    outcome = "retry_success"   # there is nothing to retry

The reason "*" is any that has no rule of its own, unless its consumer said that it is poison or misconfigured. What a
table leaves out stays as it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from holdfast.backoff import Spread
from holdfast.clock import NANOSECONDS
from holdfast.errors import SettingError
from holdfast.model.failed_message import FailedMessage, FailureClass, FailureStatus

KEY = "desk.retry"
ANY_OTHER = "*"

# Ten doubled delays are more than an hour and a half; what needs longer needs a person.
MOST_RETRIES = 10
LONGEST_DELAY_SECONDS = 7 * 24 * 3600.0

_KNOWN = ("reason", "delays", "class", "outcome")


@dataclass(frozen=True, slots=True)
class RetryRule:
    """`delays` are in seconds, one for each retry. `succeeded`: what failed has had its effect already."""

    failure_class: FailureClass
    delays: Sequence[float] = ()
    succeeded: bool = False


_SOON = (5.0, 10.0, 20.0)
_POISON = RetryRule(FailureClass.POISON)
_MISCONFIGURED = RetryRule(FailureClass.MISCONFIGURED)

# Of a reason without a rule, where the consumer said what can be done about it.
_TOLD: Mapping[FailureClass, RetryRule] = {FailureClass.POISON: _POISON, FailureClass.MISCONFIGURED: _MISCONFIGURED}

DEFAULT_RULES: Mapping[str, RetryRule] = {
    "SCHEMA_VALIDATION_ERROR": _POISON,
    "DECODE_ERROR": _POISON,
    "UNROUTABLE": _POISON,
    "MESSAGE_TOO_LARGE": _POISON,
    "EVENT_TIME_IN_FUTURE": _POISON,
    "REFUSED_BY_DEPENDENCY": _POISON,
    "MISCONFIGURED": _MISCONFIGURED,
    "STORE_MISCONFIGURED": _MISCONFIGURED,
    # The hourly limits that this is about refill by the minute.
    "API_RATE_LIMIT_EXCEEDED": RetryRule(FailureClass.TRANSIENT, (60.0, 60.0, 60.0)),
    "DATABASE_CONNECTION_ERROR": RetryRule(FailureClass.TRANSIENT, _SOON),
    "KAFKA_BROKER_UNAVAILABLE": RetryRule(FailureClass.TRANSIENT, _SOON),
    "BROKER_UNAVAILABLE": RetryRule(FailureClass.TRANSIENT, _SOON),
    "DUPLICATE_MESSAGE": RetryRule(FailureClass.UNKNOWN, succeeded=True),
    ANY_OTHER: RetryRule(FailureClass.UNKNOWN, _SOON),
}

# Of what ingest refused: another try costs one look at the schema, which is often only a deployment late.
AT_INGEST: Mapping[str, RetryRule] = {"SCHEMA_VALIDATION_ERROR": RetryRule(FailureClass.POISON, _SOON)}


class RetryPolicy:
    """`jitter` makes each delay longer or shorter by up to this share: what failed together must not come back
    together."""

    def __init__(
        self,
        rules: Mapping[str, RetryRule] = DEFAULT_RULES,
        jitter: float = 0.2,
        spread: Spread = random.random,
        at_ingest: Mapping[str, RetryRule] = AT_INGEST,
    ) -> None:
        self._rules = rules
        self._at_ingest = at_ingest
        self._jitter = jitter
        self._spread = spread

    @classmethod
    def of_tables(cls, tables: Sequence[Mapping[str, Any]], jitter: float, spread: Spread = random.random) -> Self:
        """Raises SettingError that names the table and its key."""
        edited = _edited(DEFAULT_RULES, tables)
        named = {table["reason"].strip() for table in tables}
        at_ingest = {reason: rule for reason, rule in AT_INGEST.items() if reason not in named}
        return cls(edited, jitter, spread, at_ingest)

    def rule(self, reason: str, told: FailureClass = FailureClass.UNKNOWN) -> RetryRule:
        """`told` is the class that the consumer gave it: it knows more than the rule of any other."""
        if reason not in self._rules and told in _TOLD:
            return _TOLD[told]
        return self._rules.get(reason) or self._rules[ANY_OTHER]

    def _rule_of(self, failure: FailedMessage) -> RetryRule:
        if failure.is_of_ingest and failure.failure_reason in self._at_ingest:
            return self._at_ingest[failure.failure_reason]
        return self.rule(failure.failure_reason, failure.failure_class)

    def begin(self, failure: FailedMessage, now_ns: int) -> FailedMessage:
        """A failure that is new: its class, and its first retry if it has any."""
        rule = self._rule_of(failure)
        failure = replace(failure, failure_class=rule.failure_class)
        if rule.succeeded:
            return replace(failure, status=FailureStatus.QUEUED_FOR_RETRY).mark_retry_success(now_ns)
        return self._next_retry(failure, rule, now_ns) or failure

    def retry_failed(self, failure: FailedMessage, now_ns: int, error_details: str) -> FailedMessage:
        """The retry that was out has failed: another one, or none any more."""
        rule = self._rule_of(failure)
        return self._next_retry(failure, rule, now_ns, error_details) or failure.give_up(error_details)

    def _next_retry(
        self, failure: FailedMessage, rule: RetryRule, now_ns: int, error_details: str | None = None
    ) -> FailedMessage | None:
        if failure.retry_count >= len(rule.delays):
            return None
        delay = rule.delays[failure.retry_count] * (1 + self._jitter * (2 * self._spread() - 1))
        return failure.schedule_retry(now_ns + round(delay * NANOSECONDS), error_details)


def _edited(rules: Mapping[str, RetryRule], tables: Sequence[Mapping[str, Any]]) -> dict[str, RetryRule]:
    edited = dict(rules)
    named: set[str] = set()
    for number, table in enumerate(tables):
        where = f"{KEY}[{number}]"
        reason = _reason(where, table)
        if reason in named:
            raise SettingError(f"{where}.reason", reason, "is in another table already")
        named.add(reason)
        edited[reason] = _rule(where, table, rules.get(reason, rules[ANY_OTHER]))
    return edited


def _rule(where: str, table: Mapping[str, Any], before: RetryRule) -> RetryRule:
    for key in table:
        if key not in _KNOWN:
            raise SettingError(f"{where}.{key}", table[key], f"there is no such key; these are: {', '.join(_KNOWN)}")
    failure_class = _class(where, table["class"]) if "class" in table else before.failure_class
    if "outcome" in table:
        return RetryRule(failure_class, succeeded=_succeeded(where, table))
    if "delays" in table:
        return RetryRule(failure_class, _delays(f"{where}.delays", table["delays"]))
    if "class" in table:
        return replace(before, failure_class=failure_class)
    raise SettingError(where, dict(table), "must have delays, class or outcome")


def _reason(where: str, table: Mapping[str, Any]) -> str:
    reason = table.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise SettingError(f"{where}.reason", reason, f'must be a failure reason, or "{ANY_OTHER}" for any other')
    return reason.strip()


def _class(where: str, value: object) -> FailureClass:
    if value not in list(FailureClass):
        raise SettingError(f"{where}.class", value, f"must be one of {', '.join(FailureClass)}")
    return FailureClass(str(value))


def _succeeded(where: str, table: Mapping[str, Any]) -> bool:
    if "delays" in table:
        raise SettingError(f"{where}.delays", table["delays"], "cannot be together with an outcome")
    allowed = (FailureStatus.RETRY_SUCCESS, FailureStatus.PERMANENT_FAILURE)
    if table["outcome"] not in allowed:
        raise SettingError(f"{where}.outcome", table["outcome"], f"must be one of {', '.join(allowed)}")
    return bool(table["outcome"] == FailureStatus.RETRY_SUCCESS)


def _delays(where: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MOST_RETRIES:
        raise SettingError(where, value, f"must be a list of seconds, {MOST_RETRIES} at most")
    return tuple(_seconds(f"{where}[{number}]", item) for number, item in enumerate(value))


def _seconds(where: str, value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, int | float) or not number or not 0 <= value <= LONGEST_DELAY_SECONDS:
        raise SettingError(where, value, f"must be a number of seconds from 0 to {LONGEST_DELAY_SECONDS:g}")
    return float(value)
