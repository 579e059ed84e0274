"""GET /api/v1/openapi.json: what the routes of this process say of themselves, as one OpenAPI 3.1 document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

import holdfast
from holdfast.api.http.describing import (
    JSON,
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    anything,
    api_route,
    integer,
    record,
    text,
)

PATH = "/api/v1/openapi.json"

ERROR = record(
    {
        "error": record(
            {"code": integer("The HTTP status"), "message": text(), "status": text("As Google's APIs name it")}
        )
    },
    title="Error",
)

# Every route may give these: a store that is away, and what nobody foresaw.
_ALWAYS = (500, 503)

_EMPTY: tuple[Any, ...] = ("", None, (), [], {})


def routes(others: Sequence[BaseRoute]) -> list[ApiRoute]:
    """`others` are the routes of this process; those that describe themselves are in the document, and this one."""

    async def openapi(request: Request) -> Response:
        return JSONResponse(made)

    operation = Operation("This document", tag="about", answer=Answer(anything("OpenAPI 3.1"), "The document"))
    own = api_route("GET", PATH, openapi, operation)
    made = document([route for route in (*others, own) if isinstance(route, ApiRoute)])
    return [own]


def document(described: Sequence[ApiRoute]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _lifted(_operation(route), named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": holdfast.__version__,
            "description": "What the parts that run in this process answer.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(named.items()))},
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    told = route.operation
    described: dict[str, Any] = {
        "operationId": _camel(route.name),
        "summary": told.summary,
        "description": told.description,
        "tags": [told.tag] if told.tag else [],
        "parameters": [_parameter(one) for one in _parameters(route)],
        "requestBody": _body(told),
    }
    answers = {str(one.status): _answer(one) for one in (told.answer, *told.also)} | _errors(told.errors)
    return {name: value for name, value in described.items() if value not in _EMPTY} | {"responses": answers}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _parameters(route: ApiRoute) -> list[Parameter]:
    told = list(route.operation.parameters)
    named = {one.name for one in told if one.where == "path"}
    in_path = re.findall(r"{(\w+)", route.path)
    return [Parameter(name, "", where="path") for name in in_path if name not in named] + told


def _parameter(one: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": one.name,
        "in": one.where,
        "description": one.description,
        "schema": {"type": "array", "items": one.schema} if one.repeats else one.schema,
    }
    if one.required or one.where == "path":
        described["required"] = True
    if one.example is not None:
        described["example"] = one.example
    return {name: value for name, value in described.items() if value != ""}


def _body(told: Operation) -> dict[str, Any] | None:
    body = told.body
    if body is None:
        return None
    return {"required": body.required, "content": _content(body.content_type, body.schema, body.example)}


def _answer(answer: Answer) -> dict[str, Any]:
    if answer.schema is None:
        return {"description": answer.description}
    return {
        "description": answer.description,
        "content": _content(answer.content_type, answer.schema, answer.example),
    }


def _content(content_type: str, schema: Mapping[str, Any], example: Any) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {content_type: media}


def _errors(statuses: Sequence[int]) -> dict[str, Any]:
    content = {JSON: {"schema": ERROR}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in (*sorted(statuses), *_ALWAYS)
    }


def _lifted(value: Any, named: dict[str, Any]) -> Any:
    """With every schema that has a title moved to `named`. A property that is called title is no schema's title."""
    if isinstance(value, Mapping):
        lifted = {key: _lifted(child, named) for key, child in value.items() if key not in ("example", "examples")}
        lifted |= {key: value[key] for key in ("example", "examples") if key in value}
        title = lifted.get("title")
        if not isinstance(title, str):
            return lifted
        if named.setdefault(title, lifted) != lifted:
            raise ValueError(f"two schemas are called {title}")
        return {"$ref": f"#/components/schemas/{title}"}
    return [_lifted(child, named) for child in value] if isinstance(value, list | tuple) else value
