"""The OpenAPI document of a running process: valid, whole, and true of what is answered."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support import http
from tests.support.desk import a_failure, open_store
from tests.support.process import Launcher, Running
from tests.support.waiting import eventually

PATH = "/api/v1/openapi.json"


async def fill(data: Path) -> None:
    store = await open_store(data)
    await store.record([a_failure(created_at_ns=time.time_ns())])
    await store.close()


@pytest.fixture(scope="module")
def up(shared_launcher: Launcher) -> Running:
    """With something of everything: a failure with its group, an entry of the trail, a document."""
    asyncio.run(fill(shared_launcher.data))
    running = shared_launcher.up()
    http.post(f"{running.url}/api/v1/groups/f00d:acknowledge", {})
    shared_launcher.run("publish", "system.events", '{"service": "shop", "status": "ok"}', "--broker", running.broker)
    eventually(lambda: http.get(f"{running.url}/api/v1/documents").body["collections"])
    return running


@pytest.fixture(scope="module")
def document(up: Running) -> Any:
    return http.get(up.url + PATH).body


def test_it_is_valid(document: Any) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1")


def test_every_route_is_in_it_and_it_has_no_others(up: Running, document: Any) -> None:
    with urllib.request.urlopen(up.url) as answer:
        served = {line for line in answer.read().decode().splitlines() if line.startswith("/api/v1/")}
    assert served == set(document["paths"])
    assert {"/api/v1/failures", "/api/v1/documents", "/api/v1/outcomes", "/api/v1/push", PATH} <= served


def test_every_operation_says_what_it_is_for(document: Any) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        assert operation["summary"], operation
        assert operation["tags"], operation
        assert {"500", "503"} < set(operation["responses"]), operation


def test_a_port_of_the_broker_tells_its_own(up: Running, launcher: Launcher) -> None:
    alone = launcher.part("broker")
    for address in (up.broker, alone.broker):
        told = http.get(f"http://{address}{PATH}").body
        OpenAPIV31SpecValidator(told).validate()
        ours = {"/api/v1/alerts", "/api/v1/held", "/api/v1/push", "/api/v1/messages/{id}/journey", PATH}
        assert ours <= set(told["paths"])
        assert "/api/v1/failures" not in told["paths"]


# What there is to ask for by name. The longer names first: a part of one may be another.
KNOWN = {
    "{collection}/{id}": "ops_services/local__shop",
    "{collection}": "ops_services",
    "{fingerprint}": "f00d",
    "{id}": "1",
}


def answerable(document: Any) -> list[str]:
    """What can be asked for without parameters that are required."""
    return [
        path
        for path, operations in document["paths"].items()
        if "get" in operations
        and not any(one.get("required") and one["in"] != "path" for one in operations["get"].get("parameters", []))
    ]


def test_answers_are_as_they_are_described(up: Running, document: Any) -> None:
    asked = 0
    for path in answerable(document):
        told = document["paths"][path]["get"]["responses"]["200"]
        real = path
        for name, value in KNOWN.items():
            real = real.replace(name, value)
        if "{" in real or "application/json" not in told.get("content", {}):
            continue
        reply = http.get(up.url + real)
        if reply.status == 404 and not re.search(r"/(failures|groups|documents)/", path):
            continue  # there is none of it yet
        assert reply.status == 200, f"{real}: {reply.body}"
        schema = told["content"]["application/json"]["schema"] | {"components": document["components"]}
        Draft202012Validator(schema).validate(reply.body)
        asked += 1
    assert asked >= 12


def test_examples_are_as_they_are_described(document: Any) -> None:
    checked = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            bodies = [answer.get("content", {}) for answer in operation["responses"].values()]
            bodies.append(operation.get("requestBody", {}).get("content", {}))
            for media in (body.get("application/json", {}) for body in bodies):
                if "example" in media:
                    schema = media["schema"] | {"components": document["components"]}
                    problems = list(Draft202012Validator(schema).iter_errors(media["example"]))
                    assert problems == [], f"{path}: {problems[0].message}"
                    checked += 1
    assert checked >= 5
