"""How a route of /api/v1 is described, beside the route itself: the document at /api/v1/openapi.json is made of it.

    api_route("GET", "/api/v1/things/{id}", get_thing, Operation("One thing", answer=Answer(THING), errors=(404,)))

A schema is a dict as JSON Schema has it. One with a title is kept once in the document, and pointed to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import Route

from holdfast.api.http.errors import DEFAULT_PAGE_SIZE, LARGEST_PAGE_SIZE, Endpoint, with_errors

Schema = Mapping[str, Any]

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    """`where` is query, header or path. One that `repeats` may be given several times."""

    name: str
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    where: str = "query"
    required: bool = False
    repeats: bool = False
    example: Any = None


@dataclass(frozen=True, slots=True)
class Body:
    schema: Schema
    example: Any = None
    content_type: str = JSON
    required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """Without a schema, the answer has no body that JSON Schema could describe."""

    schema: Schema | None = None
    description: str = "Done"
    example: Any = None
    content_type: str = JSON
    status: int = 200


@dataclass(frozen=True, slots=True)
class Operation:
    """`also` are other good answers, each with a status of its own. `errors` are the statuses that a caller should
    expect; every route may also answer 500 and 503. A parameter of the path needs to be named only to say more than its
    name does."""

    summary: str
    description: str = ""
    tag: str = ""
    parameters: Sequence[Parameter] = ()
    body: Body | None = None
    answer: Answer = field(default_factory=Answer)
    also: Sequence[Answer] = ()
    errors: Sequence[int] = ()


class ApiRoute(Route):
    """A route that says of itself what it takes and gives."""

    operation: Operation
    method: str


def api_route(method: str, path: str, endpoint: Endpoint, operation: Operation) -> ApiRoute:
    """Errors of Holdfast become the route's answers."""
    route = ApiRoute(path, with_errors(endpoint), methods=[method])
    route.operation = operation
    route.method = method
    return route


# Schemas.


def text(description: str = "", **more: Any) -> Schema:
    return _described({"type": "string", **more}, description)


def integer(description: str = "", **more: Any) -> Schema:
    return _described({"type": "integer", **more}, description)


def number(description: str = "", **more: Any) -> Schema:
    return _described({"type": "number", **more}, description)


def boolean(description: str = "") -> Schema:
    return _described({"type": "boolean"}, description)


def one_of(values: Sequence[str], description: str = "") -> Schema:
    return text(description, enum=[str(value) for value in values])


def time(description: str = "") -> Schema:
    return text(description, format="date-time")


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def anything(description: str = "") -> Schema:
    return _described({}, description)


def list_of(schema: Schema, description: str = "", **more: Any) -> Schema:
    return _described({"type": "array", "items": schema, **more}, description)


def map_of(schema: Schema, description: str = "") -> Schema:
    return _described({"type": "object", "additionalProperties": schema}, description)


def record(
    properties: Mapping[str, Schema],
    *,
    title: str = "",
    optional: Sequence[str] = (),
    closed: bool = False,
    description: str = "",
) -> Schema:
    """An object with these properties, all of them there but the optional ones. `closed` refuses others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    required = [name for name in properties if name not in optional]
    if required:
        schema["required"] = required
    if title:
        schema["title"] = title
    if closed:
        schema["additionalProperties"] = False
    return _described(schema, description)


def _described(schema: dict[str, Any], description: str) -> Schema:
    return {**schema, "description": description} if description else schema


# What many routes share.

PAGING = (
    Parameter(
        "pageSize",
        "How many at most",
        integer(minimum=1, maximum=LARGEST_PAGE_SIZE, default=DEFAULT_PAGE_SIZE),
    ),
    Parameter("pageToken", "`nextPageToken` of the page before"),
)

NEXT_PAGE_TOKEN = text("Empty on the last page")

# Relative or RFC 3339, as deadletter/selecting.py reads it.
MOMENT: Schema = text(
    pattern=r"^([0-9]{1,9}[smhdw]|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2}))$"
)

ACTOR = Parameter(
    "Holdfast-Actor",
    "Who does it, for the audit trail; `api` where it is absent",
    text(pattern=r"^ *[!-~]([ -~]{0,198}[!-~])? *$"),
    where="header",
    example="anna",
)

IF_MATCH = Parameter(
    "If-Match",
    "The version that is meant to be changed; 409 when it is another by now",
    text(pattern='^(W/)?"?[1-9][0-9]{0,17}"?$'),
    where="header",
    example='"3"',
)
