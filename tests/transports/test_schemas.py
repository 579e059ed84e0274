"""Whether a topic's schema would take data: the same answers from the broker in this process and over the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.schemas.definitions import AVRO, PROTOCOL_BUFFER
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.deadletter.edits.schema_check import SchemaCheck
from holdfast.errors import NotFound
from holdfast.ingest.manual import Schemas
from holdfast.model.failed_message import Content
from holdfast.model.resources import SchemaSettings, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.transports.schemas import GoogleSchemas, LocalSchemas
from tests.support.desk import a_failure

ORDERS = "projects/local/topics/orders"
AVRO_SCHEMA = "projects/local/schemas/order"
PROTO_SCHEMA = "projects/local/schemas/tick"

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "amount", "type": "int"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
    ],
}
TICK = 'syntax = "proto3"; message Tick { string symbol = 1; double price = 2; }'


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    log = MemoryMessageLog()
    opened = await Broker.open(log, SystemClock(), BrokerSettings())
    await opened.schemas.create(AVRO_SCHEMA, AVRO, json.dumps(ORDER))
    await opened.schemas.create(PROTO_SCHEMA, PROTOCOL_BUFFER, TICK)
    await opened.create_topic(Topic(ORDERS, schema=SchemaSettings(AVRO_SCHEMA)))
    await opened.create_topic(Topic("projects/local/topics/ticks", schema=SchemaSettings(PROTO_SCHEMA)))
    await opened.create_topic(Topic("projects/local/topics/plain"))
    yield opened
    await opened.close()
    await log.close()


@pytest.fixture(params=["local", "over the wire"])
async def schemas(request: pytest.FixtureRequest, broker: Broker) -> AsyncIterator[Schemas]:
    if request.param == "local":
        yield LocalSchemas(broker)
        return
    async with AsyncExitStack() as stack:
        server = PubsubServer(broker)
        port = await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.stop)
        connected = GoogleSchemas.connect(f"127.0.0.1:{port}")
        stack.push_async_callback(connected.close)
        yield connected


def order(**changes: Any) -> bytes:
    return json.dumps({"amount": 1, "lines": [{"sku": "a"}]} | changes).encode()


async def complaints(schemas: Schemas, data: bytes, topic: str = ORDERS) -> list[tuple[str, str, str]]:
    finding = await SchemaCheck(schemas).check(a_failure(source_topic=topic), Content(data))
    assert not finding.skipped
    return [(one.path, one.expected, one.actual) for one in finding.complaints]


async def test_what_fits(schemas: Schemas) -> None:
    assert await complaints(schemas, order()) == []
    assert await complaints(schemas, b'{"symbol": "X", "price": 1.5}', "projects/local/topics/ticks") == []


async def test_a_complaint_has_its_place(schemas: Schemas) -> None:
    assert await complaints(schemas, order(amount="many")) == [("/json/amount", "a whole number (int)", '"many"')]
    assert await complaints(schemas, order(lines=[{"sku": "a"}, {"sku": 7}])) == [
        ("/json/lines/1/sku", "a string", "7")
    ]
    assert await complaints(schemas, b'{"amount": 1}') == [("/json/lines", "is missing", "nothing")]


async def test_a_complaint_about_all_of_it(schemas: Schemas) -> None:
    [(path, expected, _)] = await complaints(schemas, b"{")
    assert path == ""
    assert "JSON" in expected
    [(path, expected, _)] = await complaints(schemas, b'{"prise": 1.5}', "projects/local/topics/ticks")
    assert "prise" in expected or "prise" in path


async def test_an_older_revision_that_the_topic_takes_is_enough(schemas: Schemas, broker: Broker) -> None:
    more = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
    await broker.schemas.commit(AVRO_SCHEMA, AVRO, json.dumps(more))
    assert await complaints(schemas, order()) == []
    assert await complaints(schemas, order(note="n")) == []
    [(path, _, _)] = await complaints(schemas, order(note=1))
    assert path == "/json/note"


async def test_where_there_is_nothing_to_ask(schemas: Schemas) -> None:
    check = SchemaCheck(schemas)
    for topic, why in (
        ("projects/local/topics/plain", "has no schema"),
        ("projects/local/topics/absent", "absent"),
        ("unknown", "nobody knows"),
    ):
        finding = await check.check(a_failure(source_topic=topic), Content(b"{}"))
        assert why in finding.skipped
        assert not finding.complaints
    with pytest.raises(NotFound):
        await schemas.problem("projects/local/topics/absent", b"{}")


async def test_a_schema_that_was_deleted(schemas: Schemas, broker: Broker) -> None:
    await broker.schemas.delete(AVRO_SCHEMA)
    [(_, expected, _)] = await complaints(schemas, order())
    assert "was deleted" in expected
