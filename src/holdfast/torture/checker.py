"""Reads a history and says what in it must not be. A pure function: it knows nothing of how the history came about.

lost         a publish that was confirmed has had no effect, and nobody owes it any more
twice        an effect that counts once has counted more often; an ack did not last; a replay was sent twice
order        a message came before an earlier one of its ordering key was acked
attempts     an attempt number of a message went back
unexpected   something came that nobody published, or with an id that means something else; a part ended by itself
stuck        something is still owed, or a part does not answer, long after the last fault
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.torture.history import Entry
from holdfast.torture.subscriptions import CONSUMED, EXACTLY_ONCE, ORDERED, RECEIVED, REPLAYED

CHECKS = ("lost", "twice", "order", "attempts", "unexpected", "stuck")


@dataclass(frozen=True, slots=True)
class Violation:
    """`at` is when it began, in seconds: faults before that may have to do with it."""

    check: str
    text: str
    at: float


@dataclass(slots=True)
class Verdict:
    violations: list[Violation] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)  # how much each check had to say something about


def check(entries: Sequence[Entry]) -> Verdict:
    facts = Facts.of(entries)
    verdict = Verdict()
    for name, found in _ALL.items():
        verdict.violations += sorted(found(facts), key=lambda violation: violation.at)
        verdict.looked_at[name] = _looked_at(name, facts)
    return verdict


@dataclass(slots=True)
class Facts:
    attempted: set[str] = field(default_factory=set)
    confirmed: dict[str, float] = field(default_factory=dict)  # name -> when
    ids: list[tuple[float, str, str]] = field(default_factory=list)  # when, message id, name: as confirmed
    deliveries: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))  # by subscription
    acking: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    in_order: list[Entry] = field(default_factory=list)  # deliveries and their ends, of all subscriptions
    times: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # consumer -> name -> applied
    totals: dict[str, dict[str, Mapping[str, int]]] = field(default_factory=lambda: defaultdict(dict))
    owed: dict[str, int] = field(default_factory=dict)  # by subscription, at the end
    failures: list[Entry] = field(default_factory=list)  # of the desk, at the end
    troubles: list[Entry] = field(default_factory=list)
    over: float = 0.0

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Facts:
        facts = cls()
        for entry in entries:
            facts._take(entry)
            facts.over = entry["t"]
        return facts

    def _take(self, entry: Entry) -> None:
        match entry["what"]:
            case "publishing":
                self.attempted.update(entry["names"])
            case "published":
                for name, message_id in zip(entry["names"], entry["ids"], strict=False):
                    self.confirmed.setdefault(name, entry["t"])
                    self.ids.append((entry["t"], message_id, name))
            case "delivery":
                self.deliveries[entry["sub"]].append(entry)
                self.in_order.append(entry)
            case "acking":
                self.acking[entry["sub"]].append(entry)
                self.in_order.append(entry)
            case "acked" | "refused":
                self.in_order.append(entry)
            case "document":
                self.times[entry["consumer"]][entry["name"]] = entry["times"]
            case "total":
                self.totals[entry["consumer"]][entry["key"]] = {"events": entry["events"], "sum": entry["sum"]}
            case "owed":
                self.owed[entry["sub"]] = entry["count"]
            case "failure":
                self.failures.append(entry)
            case "trouble":
                self.troubles.append(entry)


def _looked_at(name: str, facts: Facts) -> int:
    match name:
        case "lost" | "stuck":
            return len(facts.confirmed) * (len(RECEIVED) + len(CONSUMED))
        case "twice":
            return sum(map(len, facts.times.values())) + sum(len(facts.acking[sub]) for sub in RECEIVED)
        case "order":
            return sum(len(facts.deliveries[sub]) for sub in ORDERED)
        case _:
            return sum(map(len, facts.deliveries.values()))


# Lost, or stuck: what has had no effect, and whether anybody still owes it.


def _without_effect(facts: Facts) -> Iterator[tuple[str, str]]:
    """Subscription and name."""
    for sub in RECEIVED:
        had = {entry["name"] for entry in facts.acking[sub]}
        yield from ((sub, name) for name in facts.confirmed if name not in had)
    for sub in CONSUMED:
        yield from ((sub, name) for name in facts.confirmed if not facts.times[sub].get(name))


def _owed(facts: Facts) -> set[str]:
    """Subscriptions, and names that the desk has not brought to an end."""
    open_failures = {entry["name"] for entry in facts.failures if entry["status"] not in ("replayed", "retry_success")}
    return {sub for sub, count in facts.owed.items() if count} | open_failures


def _lost(facts: Facts) -> Iterator[Violation]:
    owed = _owed(facts)
    for sub, name in _without_effect(facts):
        if sub not in owed and name not in owed:
            yield Violation("lost", f"{name} for {sub}", facts.confirmed[name])


def _stuck(facts: Facts) -> Iterator[Violation]:
    yield from _troubles(facts, "stuck")
    for sub, count in facts.owed.items():
        if count:
            yield Violation("stuck", f"{sub} still owes {count} messages", facts.over)
    for entry in facts.failures:
        if entry["status"] not in ("replayed", "retry_success"):
            yield Violation("stuck", f"failure {entry['id']} of {entry['name']} is still {entry['status']}", facts.over)


# Twice.


def _twice(facts: Facts) -> Iterator[Violation]:
    yield from _effects_twice(facts)
    yield from _wrong_totals(facts)
    yield from _again_after_ack(facts)
    yield from _replayed_twice(facts)


def _effects_twice(facts: Facts) -> Iterator[Violation]:
    for sub in CONSUMED:
        for name, times in facts.times[sub].items():
            if times > 1:
                yield Violation("twice", f"{name} counted {times} times by {sub}", facts.confirmed.get(name, 0.0))


def _wrong_totals(facts: Facts) -> Iterator[Violation]:
    """Each event is counted in two documents of one transaction: the one must be the sum of the other."""
    for sub in CONSUMED:
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name, times in facts.times[sub].items():
            key, _, n = name.rpartition("-")
            sums[key][0] += times
            sums[key][1] += times * int(n)
        for key in sums.keys() | facts.totals[sub].keys():
            told = facts.totals[sub].get(key, {"events": 0, "sum": 0})
            if [told["events"], told["sum"]] != sums[key]:
                yield Violation(
                    "twice",
                    f"the events of {key} counted by {sub} are {sums[key][0]}, their total says {told['events']}",
                    facts.over,
                )


def _again_after_ack(facts: Facts) -> Iterator[Violation]:
    acked: set[tuple[str, str]] = set()
    for entry in facts.in_order:
        if entry["sub"] not in EXACTLY_ONCE:
            continue
        this = entry["sub"], entry["id"]
        if entry["what"] == "acked":
            acked.add(this)
        elif entry["what"] == "delivery" and this in acked:
            yield Violation("twice", f"{entry['name']} came to {entry['sub']} after its ack was confirmed", entry["t"])


def _replayed_twice(facts: Facts) -> Iterator[Violation]:
    """One replay id has one message; and a failed message is sent again once when that went well."""
    for sub in REPLAYED:
        first: dict[str, str] = {}  # the message of each replay id
        newest: dict[str, str] = {}  # the replay id of each message that failed
        refused: set[str] = set()  # names whose last replay failed
        for entry in facts.in_order:
            if entry["sub"] != sub:
                continue
            if entry["what"] == "refused":
                refused.add(entry["name"])
            if entry["what"] != "delivery" or not entry["replay"]:
                continue
            replay, message_id = entry["replay"], entry["id"]
            if first.setdefault(replay, message_id) != message_id:
                yield Violation("twice", f"replay of {entry['name']} was sent to {sub} as two messages", entry["t"])
            elif newest.setdefault(entry["original"], replay) != replay:
                if entry["name"] not in refused:
                    yield Violation("twice", f"{entry['name']} was replayed to {sub} again", entry["t"])
                newest[entry["original"]] = replay
            refused.discard(entry["name"])


# Order and attempts.


def _order(facts: Facts) -> Iterator[Violation]:
    for sub in ORDERED:
        newest: dict[str, Entry] = {}  # by key: the message that came last of those that came for the first time
        seen: set[str] = set()
        ended: set[str] = set()
        for entry in facts.in_order:
            if entry["sub"] != sub:
                continue
            if entry["what"] != "delivery":
                ended.add(entry["id"])
                continue
            if entry["id"] in seen or entry["replay"]:
                continue
            seen.add(entry["id"])
            before = newest.get(entry["key"])
            newest[entry["key"]] = entry
            if before is None:
                continue
            if int(entry["id"]) < int(before["id"]):
                yield Violation("order", f"{entry['name']} came to {sub} after {before['name']}", entry["t"])
            elif before["id"] not in ended:
                yield Violation("order", f"{entry['name']} came to {sub}: {before['name']} was not acked", entry["t"])


def _attempts(facts: Facts) -> Iterator[Violation]:
    for sub, deliveries in facts.deliveries.items():
        highest: dict[str, int] = {}
        for entry in deliveries:
            before = highest.get(entry["id"], 0)
            if entry["attempt"] < before:
                yield Violation(
                    "attempts", f"{entry['name']} came to {sub}: attempt {entry['attempt']} after {before}", entry["t"]
                )
            highest[entry["id"]] = max(before, entry["attempt"])


# Unexpected.


def _unexpected(facts: Facts) -> Iterator[Violation]:
    yield from _troubles(facts, "unexpected")
    meaning: dict[str, str] = {}
    for at, message_id, name in facts.ids:
        if meaning.setdefault(message_id, name) != name:
            yield Violation("unexpected", f"id {message_id} was given to {meaning[message_id]} and to {name}", at)
    for sub, deliveries in facts.deliveries.items():
        for entry in deliveries:
            if entry["name"] not in facts.attempted:
                yield Violation("unexpected", f"{entry['name']} came to {sub}; nobody published it", entry["t"])
            elif not entry["replay"] and meaning.get(entry["id"], entry["name"]) != entry["name"]:
                text = f"{entry['name']} came to {sub} with the id of {meaning[entry['id']]}"
                yield Violation("unexpected", text, entry["t"])
            if entry["attempt"] < 1:
                yield Violation("unexpected", f"{entry['name']} came to {sub} without an attempt", entry["t"])
    for sub in CONSUMED:
        for name in facts.times[sub].keys() - facts.attempted:
            yield Violation("unexpected", f"{sub} has counted {name}; nobody published it", facts.over)


def _troubles(facts: Facts, check_name: str) -> Iterator[Violation]:
    for entry in facts.troubles:
        if entry["check"] == check_name:
            yield Violation(check_name, entry["text"], entry["t"])


_ALL: Mapping[str, Callable[[Facts], Iterator[Violation]]] = {
    "lost": _lost,
    "twice": _twice,
    "order": _order,
    "attempts": _attempts,
    "unexpected": _unexpected,
    "stuck": _stuck,
}
