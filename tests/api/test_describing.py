"""Routes that describe themselves, and the OpenAPI document made of them."""

from __future__ import annotations

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http import openapi
from holdfast.api.http.describing import (
    ACTOR,
    PAGING,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    Schema,
    api_route,
    integer,
    list_of,
    or_null,
    record,
    text,
)

PART = record({"title": text(), "example": text()}, title="Part")
THING = record({"name": text(), "parts": list_of(PART), "size": or_null(integer())}, title="Thing", optional=("size",))


async def change_thing(request: Request) -> Response:
    return JSONResponse({})


def a_route(schema: Schema = THING, path: str = "/api/v1/things/{id}:change") -> ApiRoute:
    operation = Operation(
        "Change a thing",
        parameters=(*PAGING, ACTOR, Parameter("kind", "Of these", repeats=True)),
        body=Body(record({"name": text()}, closed=True), example={"name": "x"}),
        answer=Answer(schema, "The thing", example={"name": "x", "parts": [], "title": "not a schema's"}),
        errors=(404, 400),
    )
    return api_route("POST", path, change_thing, operation)


def test_a_document_is_valid_and_has_all_that_was_said() -> None:
    made = openapi.document([a_route()])
    OpenAPIV31SpecValidator(made).validate()
    operation = made["paths"]["/api/v1/things/{id}:change"]["post"]
    assert operation["operationId"] == "changeThing"
    assert [(one["in"], one["name"]) for one in operation["parameters"]] == [
        ("path", "id"),
        ("query", "pageSize"),
        ("query", "pageToken"),
        ("header", "Holdfast-Actor"),
        ("query", "kind"),
    ]
    assert operation["parameters"][-1]["schema"]["type"] == "array"
    assert sorted(operation["responses"]) == ["200", "400", "404", "500", "503"]
    assert operation["requestBody"]["content"]["application/json"]["example"] == {"name": "x"}


def test_schemas_with_a_title_are_kept_once() -> None:
    made = openapi.document([a_route(), a_route(path="/api/v1/others")])
    assert sorted(made["components"]["schemas"]) == ["Error", "Part", "Thing"]
    thing = made["components"]["schemas"]["Thing"]
    assert thing["properties"]["parts"]["items"] == {"$ref": "#/components/schemas/Part"}
    assert thing["required"] == ["name", "parts"]
    answer = made["paths"]["/api/v1/others"]["post"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert answer["example"]["title"] == "not a schema's"


def test_two_schemas_of_one_name_are_a_mistake() -> None:
    other = record({"name": integer()}, title="Thing")
    with pytest.raises(ValueError, match="two schemas are called Thing"):
        openapi.document([a_route(), a_route(other, "/api/v1/others")])
