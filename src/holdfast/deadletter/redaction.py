"""What people may not see without the right to: fields of payloads, attributes, ordering keys. Pure.

    payload:card.number   a path within a JSON payload; * is any one step, ** any number of them, also none. A JSON
                          Pointer, such as payload:/card/a.b, names keys with dots
    attribute:token       an attribute
    key                   the ordering key

A payload that is not JSON cannot be hidden in part, so a rule for payloads hides all of it. What is hidden is not
shown, exported or searched for, and no edit may touch it: whoever may test a value can find out what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.consumer.decode import unpacked
from holdfast.deadletter.edits.document import document_of, payload_document
from holdfast.deadletter.quotes import HIDDEN, texts_of, without_values, without_words_of
from holdfast.deadletter.selection import Selection, path_parts
from holdfast.errors import BadInput, PermissionDenied, Poison, SettingError
from holdfast.model.failed_message import Content
from holdfast.model.json_pointer import Path, format_pointer, parse_pointer
from holdfast.model.message import Message
from holdfast.settings import DeskSettings


@dataclass(frozen=True, slots=True)
class Rule:
    """`steps` lead to what is hidden, in the document that deadletter/edits/document.py makes of a message."""

    text: str
    steps: Path

    @property
    def for_payload(self) -> bool:
        return self.steps[0] == "json"


def parse_rule(text: str) -> Rule:
    """Raises BadInput."""
    kind, colon, name = text.strip().partition(":")
    if kind == "key" and not colon:
        return Rule("key", ("orderingKey",))
    if kind == "attribute" and name:
        return Rule(text.strip(), ("attributes", name))
    if kind == "payload" and (path := _payload_path(name)):
        return Rule(text.strip(), ("json", *path))
    raise BadInput("rule", f"must be payload:PATH, attribute:NAME or key, not {text[:64]!r}")


def _payload_path(name: str) -> Path:
    try:
        return parse_pointer(name) if name.startswith("/") else tuple(path_parts(name)) if all(path_parts(name)) else ()
    except ValueError as error:
        raise BadInput("rule", f"{name[:64]!r} {error}") from None


class Redaction:
    """Made without rules it hides nothing: that is how those with the right to see all are served."""

    def __init__(self, rules: Iterable[str] = ()) -> None:
        self._rules = tuple(map(parse_rule, rules))
        self._hides_payloads = any(rule.for_payload for rule in self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(rule.text for rule in self._rules)

    # A message's content, as the document that edits work on.

    def hidden_paths(self, document: Mapping[str, Any]) -> list[Path]:
        """Of what is there to hide, without those inside of another."""
        if not self._rules:
            return []
        found = {path for rule in self._rules for path in _matching(document, rule.steps)}
        if self._hides_payloads:
            found |= {(form,) for form in ("text", "data") if document.get(form)}
        return sorted(path for path in found if not any(path[:depth] in found for depth in range(len(path))))

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The same with HIDDEN in the place of what is hidden."""
        shown: Any = document
        for path in self.hidden_paths(document):
            shown = _replaced(shown, path)
        return dict(shown)

    def check_untouched(self, document: Mapping[str, Any], path: Path) -> None:
        """Before an edit reads or changes what is at `path`, or moves its neighbours in an array."""
        if _in_array(document, path):
            path = path[:-1]
        for hidden in self.hidden_paths(document):
            depth = min(len(hidden), len(path))
            if hidden[:depth] == path[:depth]:
                raise PermissionDenied(
                    f"{format_pointer(path)[:200] or 'the whole message'} is redacted, or has parts that are"
                )

    def value(self, document: Mapping[str, Any], path: Path, value: Any) -> Any:
        """`value`, which is at `path` of `document`, as it may be shown."""
        shown = value
        for hidden in self.hidden_paths(document):
            if path[: len(hidden)] == hidden:
                return HIDDEN
            if hidden[: len(path)] == path:
                shown = _replaced(shown, hidden[len(path) :])
        return shown

    # Text that may quote what is hidden.

    def text(self, text: str, *contents: Content) -> str:
        """Errors tell what they met. Every hidden value of these contents is replaced, however it is written."""
        if not self._rules or not text:
            return text
        for content in contents:
            text = without_values(text, set(self._hidden_values(content)))
            text = without_words_of(text, self._unreadable(content))
        return text

    def of_message(self, message: Message, text: str) -> str:
        return self.text(text, Content(message.data, message.attributes, message.ordering_key))

    def _unreadable(self, content: Content) -> bytes:
        """The payload, where it is hidden because nobody can say what is in it."""
        is_readable = "json" in payload_document(_unpacked(content.data))
        return b"" if is_readable or not self._hides_payloads else content.data

    def _hidden_values(self, content: Content) -> Iterator[str]:
        document = document_of(replace(content, data=_unpacked(content.data)))
        for path in self.hidden_paths(document):
            value: Any = document
            for step in path:
                value = value[int(step)] if isinstance(value, list) else value[step]
            yield from texts_of(value)

    # Questions.

    def check_selection(self, wanted: Selection) -> None:
        """Whoever may search for a value, and count, can find out what it is."""
        if not self._rules:
            return
        if wanted.text:
            raise PermissionDenied("text: errors and payloads have parts that are redacted, so they cannot be searched")
        for name in wanted.attributes:
            self._check_searched(f"attribute {name[:64]!r}", ("attributes", name))
        for path in wanted.payload:
            self._check_searched(f"payload field {path[:64]!r}", ("json", *path_parts(path)))

    def _check_searched(self, what: str, path: Path) -> None:
        if any(_may_overlap(rule.steps, path) for rule in self._rules):
            raise PermissionDenied(f"{what} is redacted, or has parts that are, so it cannot be searched")


NOTHING_HIDDEN = Redaction()


def _unpacked(data: bytes) -> bytes:
    """As the consumer reads it."""
    try:
        return unpacked(data)
    except Poison:
        return data


def redaction_from(settings: DeskSettings) -> Redaction:
    """Raises SettingError for a rule that is none."""
    for rule in settings.redact:
        try:
            parse_rule(rule)
        except BadInput as error:
            raise SettingError("desk.redact", rule, error.why) from error
    return Redaction(settings.redact)


def _matching(value: Any, steps: Sequence[str], path: Path = ()) -> Iterator[Path]:
    if not steps:
        yield path
        return
    step, rest = steps[0], steps[1:]
    if step == "**":
        yield from _matching(value, rest, path)
    for name, item in _items(value):
        if step == "**":
            yield from _matching(item, steps, (*path, name))
        elif step in ("*", name):
            yield from _matching(item, rest, (*path, name))


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(place), item) for place, item in enumerate(value)) if isinstance(value, list) else ()


def _may_overlap(steps: Path, path: Path) -> bool:
    """Whether one may be inside of the other, in some document."""
    if not steps or not path or steps[0] == "**":
        return True
    is_same = steps[0] in ("*", path[0]) or (_is_whole(steps[0]) and _is_whole(path[0]))
    return is_same and _may_overlap(steps[1:], path[1:])


def _is_whole(step: str) -> bool:
    """A place in an array has several names where a database reads them: 1, 01, or -2 from the end."""
    try:
        int(step)
    except ValueError:
        return False
    return True


def _in_array(document: Any, path: Path) -> bool:
    value = document
    for step in path[:-1]:
        match value:
            case dict():
                value = value.get(step)
            case list() if step.isascii() and step.isdecimal() and int(step[:9]) < len(value):
                value = value[int(step)]
            case _:
                return False
    return bool(path) and isinstance(value, list)


def _replaced(value: Any, path: Path) -> Any:
    if not path:
        return HIDDEN
    if isinstance(value, list):
        place = int(path[0])
        return [*value[:place], _replaced(value[place], path[1:]), *value[place + 1 :]]
    return {**value, path[0]: _replaced(value[path[0]], path[1:])}
