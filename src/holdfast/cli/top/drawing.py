"""Lines of a terminal for a picture: every section as a block, the blocks cut to the height there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.alerts.alert import Severity
from holdfast.alerts.table import RULES
from holdfast.cli.output import printable, width_of
from holdfast.cli.top import cells
from holdfast.cli.top.cells import Cell, Column, Line, Style
from holdfast.cli.top.picture import ConsumerRow, Desk, Picture, Process, SubscriptionRow, Work
from holdfast.model.names import short_id

Key = Callable[[SubscriptionRow], float | str]


@dataclass(frozen=True, slots=True)
class Order:
    """By which subscriptions are sorted: most first, but names from A on."""

    name: str
    key: str  # on the keyboard
    of: Key


ORDERS = (
    Order("backlog", "b", lambda row: row.backlog or 0.0),
    Order("oldest", "o", lambda row: row.oldest or 0.0),
    Order("in", "i", lambda row: row.incoming or 0.0),
    Order("delivered", "d", lambda row: row.delivered or 0.0),
    Order("acked", "a", lambda row: row.acked or 0.0),
    Order("failing", "f", lambda row: row.failing),
    Order("name", "n", lambda row: row.name),
)


@dataclass(frozen=True, slots=True)
class View:
    """How the user wants it."""

    order: Order = ORDERS[0]
    reverse: bool = False
    filter: str = ""
    first: int = 0  # subscription on the screen
    paused: bool = False
    typing: bool = False  # a filter

    def rows(self, picture: Picture) -> list[SubscriptionRow]:
        found = [row for row in picture.subscriptions if self.filter.lower() in row.name.lower()]
        by_name = sorted(found, key=lambda row: row.name)
        most_first = self.order.name != "name"
        return sorted(by_name, key=self.order.of, reverse=most_first != self.reverse)


_WARN_AFTER = {rule.severity: rule.threshold for rule in RULES if rule.name in ("OldestUnacked", "OldestUnackedHigh")}

_SUBSCRIPTION_COLUMNS = (
    Column("subscription", left=True, least=30, middle=True),
    Column("backlog"),
    Column("oldest"),
    Column("in/s", rank=3),
    Column("out/s", rank=2),
    Column("ack/s", rank=1),
    Column("nack/s", rank=1),
    Column("late/s", rank=7),
    Column("dead/s", rank=4),
    Column("push", rank=5, left=True),
    Column("window", rank=8),
    Column("failed", rank=7),
    Column("why", rank=6, left=True, least=10),
)

_CONSUMER_COLUMNS = (
    Column("consumer", left=True, least=12),
    Column("handled"),
    Column("applied/s"),
    Column("dup/s", rank=2),
    Column("stale/s", rank=2),
    Column("poison/s", rank=1),
    Column("retry/s", rank=1),
    Column("p50", rank=3),
    Column("p99"),
)


def drawn(picture: Picture, view: View, now: float, width: int | None = None, height: int | None = None) -> list[Line]:
    """`height` lines, none wider than `width`; without them all there is. `now` is in seconds since 1970."""
    head = [*(_process(one, now) for one in picture.processes), *_totals(picture), *_firing(picture)]
    rows = view.rows(picture)
    if height is not None:  # what there is no room for need not be drawn
        first = min(view.first, max(len(rows) - 1, 0))
        rows = rows[first : first + height]
    subscriptions = _subscriptions(rows, width)
    blocks = [block for block in (_consumers(picture, width), _desk(picture.desk, width)) if block]
    foot = [_foot(view, width)] if height is not None else []
    if height is not None:
        head = head[: max(height - 4, 1)]
        subscriptions, blocks = _shared(subscriptions, blocks, height - len(head) - len(foot))
    lines = [*head, *subscriptions, *(line for block in blocks for line in [[], *block])]
    if height is not None:
        lines = lines[: height - len(foot)]
        lines += [[] for _ in range(height - len(foot) - len(lines))]
    return [_cut(line, width) for line in [*lines, *foot]]


def _shared(subscriptions: list[Line], blocks: list[list[Line]], room: int) -> tuple[list[Line], list[list[Line]]]:
    """The longest of them gives way, line by line; a block of which nothing but its title is left goes."""
    subscriptions, blocks = list(subscriptions), [list(block) for block in blocks]
    hidden = 0
    while blocks and len(subscriptions) + sum(len(block) + 1 for block in blocks) > room:
        longest = max([subscriptions, *blocks], key=len)
        if longest is subscriptions and len(subscriptions) <= 5:
            blocks.pop()
            continue
        longest.pop()
        hidden += longest is subscriptions
        blocks = [block for block in blocks if len(block) > 1]
    return subscriptions[: max(room, 0)], blocks


# The head.


def _process(one: Process, now: float) -> Line:
    if one.error:
        return [Cell(one.url, Style.BOLD), Cell(f"  does not answer: {one.error}; trying again", Style.CRITICAL)]
    if not one.part:
        return [Cell(one.url, Style.BOLD), Cell("  …")]
    name = f"holdfast {one.part}"
    return [Cell(name, Style.BOLD), Cell(f" {one.version} at {one.url}, up for {cells.lasting(now - one.started)}")]


def _totals(picture: Picture) -> list[Line]:
    if not picture.subscriptions and not picture.topics:
        return []
    backlog = sum(row.backlog or 0.0 for row in picture.subscriptions)
    known = [row.published for row in picture.topics if row.published is not None]
    sizes = [row.bytes for row in picture.topics if row.bytes is not None]
    published = cells.rate(sum(known)) if known else cells.UNKNOWN
    told = f"{len(picture.subscriptions)} subscriptions  backlog {cells.count(backlog)}  published {published}/s"
    return [[Cell(told + (f" ({cells.size(sum(sizes))}/s)" if sizes else ""))]]


def _firing(picture: Picture) -> list[Line]:
    counts = {severity: picture.alerts.get(str(severity), 0.0) for severity in (Severity.CRITICAL, Severity.WARNING)}
    if not picture.alerts:
        return []
    if not any(counts.values()):
        return [[Cell("alerts: none fires")]]
    line = [Cell("alerts:")]
    for severity, style in ((Severity.CRITICAL, Style.CRITICAL), (Severity.WARNING, Style.WARNING)):
        if counts[severity]:
            line.append(Cell(f" {counts[severity]:.0f} {severity}", style))
    names = [str(row.get("summary") or row.get("rule") or "") for row in picture.firing]
    if any(names):
        line.append(Cell("  " + "; ".join(name for name in names if name)))
    return [line]


# Subscriptions.


def _subscriptions(rows: Sequence[SubscriptionRow], width: int | None) -> list[Line]:
    if not rows:
        return []
    return [[], *cells.table(_SUBSCRIPTION_COLUMNS, [_subscription(row) for row in rows], width)]


def _subscription(row: SubscriptionRow) -> list[Cell]:
    push = row.push or {}
    attempts = {str(result): int(number) for result, number in push.get("attempts", {}).items()}
    failed = sum(attempts.values()) - attempts.get("acknowledged", 0)
    state = str(push.get("state", "paused" if row.paused else ""))
    why = str(push.get("pausedBecause") or push.get("lastError") or "")
    return [
        Cell(short_id(row.name)),
        Cell(cells.count(row.backlog)),
        Cell(cells.lasting(row.oldest), _age_style(row.oldest)),
        Cell(cells.rate(row.incoming)),
        Cell(cells.rate(row.delivered)),
        Cell(cells.rate(row.acked)),
        Cell(cells.rate(row.nacked), _style(row.nacked, Style.WARNING)),
        Cell(cells.rate(row.expired), _style(row.expired, Style.WARNING)),
        Cell(cells.rate(row.dead_lettered), _style(row.dead_lettered, Style.CRITICAL)),
        Cell(state, Style.WARNING if state not in ("", "idle", "sending") else Style.PLAIN),
        Cell(f"{push.get('inFlight')}/{push.get('window')}" if push else ""),
        Cell(cells.count(failed) if push else "", _style(failed, Style.WARNING)),
        Cell(why, Style.WARNING if row.paused else Style.DIM),
    ]


def _age_style(seconds: float | None) -> Style:
    if seconds is not None and seconds > _WARN_AFTER[Severity.CRITICAL]:
        return Style.CRITICAL
    return Style.WARNING if seconds is not None and seconds > _WARN_AFTER[Severity.WARNING] else Style.PLAIN


def _style(value: float | None, style: Style) -> Style:
    return style if value else Style.PLAIN


# Consumers.


def _consumers(picture: Picture, width: int | None) -> list[Line]:
    if picture.work is None:
        return []
    lines = [_work(picture.work)]
    rows = [_consumer(row) for row in sorted(picture.consumers, key=lambda row: (-row.handled, row.topic))]
    return lines + cells.table(_CONSUMER_COLUMNS, rows, width) if rows else lines


def _work(work: Work) -> Line:
    line = [
        Cell("consumer ", Style.BOLD),
        Cell(f"in hands {cells.count(work.in_hands)}  waiting {cells.count(work.queue)}  answers"),
    ]
    for kind, value in sorted(work.answers.items()):
        bad = kind in ("4xx", "5xx")
        line.append(Cell(f"  {kind} {cells.rate(value)}/s", _style(value if bad else 0, Style.WARNING)))
    errors = sum(value or 0.0 for value in work.store_errors.values())
    line.append(Cell(f"  store errors {cells.rate(errors)}/s", _style(errors, Style.WARNING)))
    line.append(Cell(f"  asked again {cells.rate(work.store_retries)}/s"))
    return line


def _consumer(row: ConsumerRow) -> list[Cell]:
    rates = {name: cells.rate(value) for name, value in row.outcomes.items()}
    poison, retry = row.outcomes.get("poison"), row.outcomes.get("retry")
    return [
        Cell(row.topic),
        Cell(cells.count(row.handled)),
        Cell(rates.get("applied", cells.UNKNOWN)),
        Cell(rates.get("duplicate", cells.UNKNOWN)),
        Cell(rates.get("stale_ignored", cells.UNKNOWN)),
        Cell(rates.get("poison", cells.UNKNOWN), _style(poison, Style.CRITICAL)),
        Cell(rates.get("retry", cells.UNKNOWN), _style(retry, Style.WARNING)),
        Cell(cells.quick(row.p50)),
        Cell(cells.quick(row.p99)),
    ]


# The desk.

_GROUP_COLUMNS = (
    Column("group", left=True),
    Column("failures"),
    Column("waiting", rank=2),
    Column("reason", left=True, least=12),
    Column("subscription", rank=1, left=True, least=12, middle=True),
    Column("example", rank=3, left=True, least=10),
)


def _desk(desk: Desk | None, width: int | None) -> list[Line]:
    if desk is None:
        return []
    line = [Cell("desk ", Style.BOLD), Cell(_counts(desk.statuses))]
    if desk.mended is not None:
        line.append(Cell(f"  mended by retries {cells.share(desk.mended)}"))
    lines = [line]
    if desk.reasons:
        lines.append([Cell("by reason  "), Cell(_counts(desk.reasons, most=6))])
    lines += [_replay(one) for one in desk.replays]
    if desk.open_groups:
        groups = sorted(desk.open_groups, key=lambda group: -int(group.get("count", 0)))
        lines += cells.table(_GROUP_COLUMNS, [_group(one) for one in groups], width)
    return lines


def _counts(counts: Mapping[str, float], most: int | None = None) -> str:
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    more = f"  … {len(ranked) - most} more" if most is not None and len(ranked) > most else ""
    return "  ".join(f"{name} {cells.count(value)}" for name, value in ranked[:most]) + more


def _replay(one: Mapping[str, object]) -> Line:
    counts = one.get("counts")
    counts = counts if isinstance(counts, dict) else {}
    ended = sum(int(counts.get(state, 0)) for state in ("succeeded", "failed", "skipped"))
    told = f"  {ended} of {one.get('total')}, {counts.get('failed', 0)} failed, {one.get('ratePerSecond')}/s"
    why = one.get("trouble") or one.get("why") or ""
    style = Style.WARNING if one.get("state") == "paused" else Style.PLAIN
    return [Cell(f"replay {one.get('id')} {one.get('state')}", style), Cell(told + (f": {why}" if why else ""))]


def _group(group: Mapping[str, object]) -> list[Cell]:
    return [
        Cell(str(group.get("fingerprint", ""))),
        Cell(cells.count(float(str(group.get("count", 0))))),
        Cell(cells.count(float(str(group.get("waiting", 0)))), Style.WARNING),
        Cell(str(group.get("failureReason", ""))),
        Cell(short_id(str(group.get("subscription", "")))),
        Cell(str(group.get("example", "")), Style.DIM),
    ]


# The foot, and the width.


def _foot(view: View, width: int | None) -> Line:
    """Where its names do not fit, the orders are told by their keys alone: those are the first letters."""
    if view.typing:
        return [Cell(f"filter: {view.filter}_", Style.TITLE), Cell("  Enter keeps it, Esc forgets it")]
    line = [Cell(f"by {view.order.name}{' reversed' if view.reverse else ''}  ", Style.BOLD)]
    if view.filter:
        line.append(Cell(f"filter {view.filter!r}  ", Style.BOLD))
    if view.paused:
        line.insert(0, Cell("PAUSED  ", Style.WARNING))
    named, short = (" ".join(f"{order.key}:{order.name}" for order in ORDERS), ",".join(order.key for order in ORDERS))
    told, brief = (f"q:quit p:pause /:filter r:reverse  sort {keys}" for keys in (named, short))
    room = None if width is None else width - sum(width_of(cell.text) for cell in line)
    return [*line, Cell(told if room is None or width_of(told) <= room else brief, Style.DIM)]


def _cut(line: Line, width: int | None) -> Line:
    if width is None:
        return line
    kept: Line = []
    for cell in line:
        left = width - sum(width_of(one.text) for one in kept)
        if left <= 0:
            break
        text = cell.text if width_of(cell.text) <= left else _shortened(cell.text, left)
        kept.append(replace(cell, text=text))
    return kept


def _shortened(text: str, most: int) -> str:
    while text and width_of(text) > most - 1:
        text = text[:-1]
    return text + "…"


def plain(line: Line) -> str:
    return printable("".join(cell.text for cell in line)).rstrip()


def styled(line: Line) -> str:
    """As a terminal is sent it."""
    reset = "\x1b[0m"
    return "".join(f"{cell.style}{printable(cell.text)}{reset if cell.style else ''}" for cell in line)
