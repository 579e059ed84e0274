"""Finds the route of a request by google.api.http path templates, such as /v1/{topic=projects/*/topics/*}:publish."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import unquote

Target = TypeVar("Target")

_TOKEN = re.compile(r"\{(?P<variable>[\w.]+)(?:=(?P<pattern>[^}]+))?\}|(?P<wildcard>\*\*?)|(?P<literal>[^{*]+)")
_ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)
_ENCODED_COLON = re.compile("%3a", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Template:
    pattern: re.Pattern[str]
    variables: tuple[str, ...]

    def match(self, path: str) -> Mapping[str, str] | None:
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        return {name: _decoded(text) for name, text in zip(self.variables, found.groups(), strict=True)}


class Router(Generic[Target]):
    def __init__(self, routes: Iterable[tuple[str, str, Target]]) -> None:
        """Each route is an HTTP verb, a template and what it leads to."""
        self._routes: dict[tuple[str, str], list[tuple[Template, Target]]] = {}
        for verb, template, target in routes:
            path, custom = split_custom_verb(template)
            self._routes.setdefault((verb, custom), []).append((_compiled(path), target))

    def find(self, verb: str, raw_path: str) -> tuple[Target, Mapping[str, str]] | None:
        path, custom = split_custom_verb(raw_path)
        for template, target in self._routes.get((verb, custom), ()):
            values = template.match(path)
            if values is not None:
                return target, values
        return None


def split_custom_verb(path: str) -> tuple[str, str]:
    """/v1/a/b:publish is /v1/a/b and publish. No id has a colon, but a project in the middle may."""
    head, slash, last = path.rpartition("/")
    last, _, custom = _ENCODED_COLON.sub(":", last).partition(":")
    return head + slash + last, custom


def _compiled(template: str) -> Template:
    variables: list[str] = []
    pattern = ""
    for token in _TOKEN.finditer(template):
        if token["variable"]:
            variables.append(token["variable"])
            pattern += f"({_plain(token['pattern'] or '*')})"
        else:
            pattern += _plain(token[0])
    return Template(re.compile(pattern), tuple(variables))


def _plain(template: str) -> str:
    """Of a piece without variables. "*" is one segment, "**" is any number."""
    return re.escape(template).replace(r"\*\*", ".+").replace(r"\*", "[^/]+")


def _decoded(text: str) -> str:
    """A slash that was encoded stays so: it was meant to be part of a segment."""
    return unquote(_ENCODED_SLASH.sub("%252F", text))
