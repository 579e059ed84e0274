"""Topics with a schema: what fits is published and marked, what does not is refused by field."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import SchemaServiceClient
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.types import Encoding, Schema

from tests.support.served_broker import PROJECT, SECONDS, SUBSCRIPTION, TOPIC, Clients, Server

SCHEMA = f"{PROJECT}/schemas/order"
AVRO = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "int"}]}
)


@pytest.fixture
def schemas(server: Server) -> Iterator[SchemaServiceClient]:
    client = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=grpc.insecure_channel(server.address)))
    schema = Schema(name=SCHEMA, type_=Schema.Type.AVRO, definition=AVRO)
    client.create_schema(parent=PROJECT, schema=schema, schema_id="order", timeout=SECONDS)
    yield client
    client.transport.close()  # type: ignore[no-untyped-call]


def make_topic(clients: Clients) -> None:
    settings = {"schema": SCHEMA, "encoding": Encoding.JSON}
    clients.publisher.create_topic(request={"name": TOPIC, "schema_settings": settings}, timeout=SECONDS)
    clients.subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC, timeout=SECONDS)


def test_what_fits_is_published_with_the_schemas_attributes(clients: Clients, schemas: SchemaServiceClient) -> None:
    make_topic(clients)
    clients.publish(b'{"id": "a", "total": 3}')
    (received,) = clients.pull()
    revision = schemas.get_schema(name=SCHEMA, timeout=SECONDS).revision_id
    assert dict(received.message.attributes) == {
        "googclient_schemaencoding": "JSON",
        "googclient_schemaname": SCHEMA,
        "googclient_schemarevisionid": revision,
    }


def test_what_does_not_fit_is_refused_by_field_and_nothing_is_published(
    clients: Clients, schemas: SchemaServiceClient
) -> None:
    make_topic(clients)
    with pytest.raises(exceptions.InvalidArgument) as caught:
        clients.publish(b'{"id": "a", "total": 3}', b'{"id": "a", "total": "three"}')
    assert "messages[1]" in str(caught.value)
    assert "total" in str(caught.value)
    assert clients.pull() == []


def test_a_topic_needs_a_schema_that_exists(clients: Clients) -> None:
    with pytest.raises(exceptions.NotFound):
        make_topic(clients)


def test_a_deleted_schema_is_shown_and_refuses_messages(clients: Clients, schemas: SchemaServiceClient) -> None:
    make_topic(clients)
    schemas.delete_schema(name=SCHEMA, timeout=SECONDS)
    assert clients.publisher.get_topic(topic=TOPIC, timeout=SECONDS).schema_settings.schema == "_deleted-schema_"
    with pytest.raises(exceptions.InvalidArgument):
        clients.publish(b'{"id": "a", "total": 3}')


def test_a_schema_is_put_on_and_taken_off_by_an_update(clients: Clients, schemas: SchemaServiceClient) -> None:
    clients.make()
    settings = {"schema": SCHEMA, "encoding": Encoding.JSON}
    topic = {"name": TOPIC, "schema_settings": settings}
    mask = {"paths": ["schema_settings"]}
    clients.publisher.update_topic(request={"topic": topic, "update_mask": mask}, timeout=SECONDS)
    with pytest.raises(exceptions.InvalidArgument):
        clients.publish(b"free text")
    clients.publisher.update_topic(request={"topic": {"name": TOPIC}, "update_mask": mask}, timeout=SECONDS)
    clients.publish(b"free text")
    assert [item.message.data for item in clients.pull()] == [b"free text"]
