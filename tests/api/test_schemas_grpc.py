"""google.pubsub.v1.SchemaService as the official client uses it, against a real server on a free port."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import SchemaServiceClient
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.types import Encoding, Schema, SchemaView

from holdfast.api.grpc import schemas
from holdfast.clock import SystemClock
from tests.support.served_broker import Server

PROJECT = "projects/proj"
NAME = f"{PROJECT}/schemas/order"

SECONDS = 30.0  # longest wait for any one call; protoc is a process, and starting one may take a while

PROTO = 'syntax = "proto3"; message Order { string id = 1; int32 amount = 2; }'


def avro(*fields: str) -> str:
    """Fields with defaults, so that any two of these are compatible."""
    described = [{"name": name, "type": "int", "default": 0} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": described})


class Client:
    """The official client, with a limit of time on every call."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._client: Any = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=self._channel))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)
        return lambda **request: call(request=request, timeout=SECONDS, retry=None)

    def create(self, definition: str, schema_id: str = "order", kind: Any = Schema.Type.AVRO) -> Any:
        schema = {"type_": kind, "definition": definition}
        return self.create_schema(parent=PROJECT, schema=schema, schema_id=schema_id)

    def commit(self, definition: str, kind: Any = Schema.Type.AVRO, name: str = NAME) -> Any:
        return self.commit_schema(name=name, schema={"name": name, "type_": kind, "definition": definition})

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "broker.db")
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    connected = Client(server.address)
    yield connected
    connected.close()


def test_every_method_of_the_service_is_offered() -> None:
    from google.pubsub_v1.services.schema_service.transports.base import SchemaServiceTransport

    offered = {name.lower() for name in schemas.Schemas(None).methods()}  # type: ignore[arg-type]
    known = {
        name.replace("_", "")
        for name, value in vars(SchemaServiceTransport).items()
        if isinstance(value, property) and name not in ("host", "kind")
    }
    iam = {"setiampolicy", "getiampolicy", "testiampermissions"}  # of another service
    assert offered == known - iam


def test_a_schema_is_created_and_read_in_both_views(client: Client) -> None:
    created = client.create(PROTO, kind=Schema.Type.PROTOCOL_BUFFER)
    assert created.name == NAME
    assert created.type_ == Schema.Type.PROTOCOL_BUFFER
    assert created.definition == PROTO
    assert len(created.revision_id) == 8
    assert abs(created.revision_create_time.timestamp() - SystemClock().now_ns() / 1e9) < SECONDS
    assert client.get_schema(name=NAME) == created
    assert client.get_schema(name=f"{NAME}@{created.revision_id}", view=SchemaView.FULL) == created
    basic = client.get_schema(name=NAME, view=SchemaView.BASIC)
    assert (basic.name, basic.definition, basic.revision_id) == (NAME, "", created.revision_id)


def test_lists_have_pages_and_views(client: Client) -> None:
    for number in range(5):
        client.create(avro("a"), f"schema-{number}")
    listed = list(client.list_schemas(parent=PROJECT, page_size=2))
    assert [schema.name for schema in listed] == [f"{PROJECT}/schemas/schema-{number}" for number in range(5)]
    assert {schema.definition for schema in listed} == {""}
    assert {schema.definition for schema in client.list_schemas(parent=PROJECT, view=SchemaView.FULL)} == {avro("a")}
    assert list(client.list_schemas(parent="projects/other")) == []


def test_revisions_are_committed_listed_newest_first_rolled_back_and_deleted(client: Client) -> None:
    first = client.create(avro("a"))
    second = client.commit(avro("a", "b"))
    third = client.rollback_schema(name=NAME, revision_id=first.revision_id)
    assert third.definition == avro("a")
    assert len({first.revision_id, second.revision_id, third.revision_id}) == 3
    listed = client.list_schema_revisions(name=NAME, page_size=2, view=SchemaView.FULL)
    assert list(listed) == [third, second, first]
    assert {revision.definition for revision in client.list_schema_revisions(name=NAME)} == {""}
    assert client.delete_schema_revision(name=f"{NAME}@{third.revision_id}") == second
    assert client.delete_schema_revision(name=NAME, revision_id=first.revision_id) == second
    assert client.get_schema(name=NAME) == second
    with pytest.raises(exceptions.FailedPrecondition):
        client.delete_schema_revision(name=f"{NAME}@{second.revision_id}")


def test_a_deleted_schema_is_gone_and_its_name_is_free(client: Client) -> None:
    first = client.create(avro("a"))
    client.delete_schema(name=NAME)
    with pytest.raises(exceptions.NotFound):
        client.get_schema(name=NAME)
    again = client.create(PROTO, kind=Schema.Type.PROTOCOL_BUFFER)
    assert again.revision_id != first.revision_id


def test_schemas_and_messages_are_validated_without_being_kept(client: Client) -> None:
    schema = {"type_": Schema.Type.PROTOCOL_BUFFER, "definition": PROTO}
    client.validate_schema(parent=PROJECT, schema=schema)
    client.validate_message(parent=PROJECT, schema=schema, message=b'{"id": "a"}', encoding=Encoding.JSON)
    client.validate_message(parent=PROJECT, schema=schema, message=b"\x0a\x01a", encoding=Encoding.BINARY)
    with pytest.raises(exceptions.InvalidArgument, match="amount"):
        client.validate_message(parent=PROJECT, schema=schema, message=b'{"amount": "x"}', encoding=Encoding.JSON)
    assert list(client.list_schemas(parent=PROJECT)) == []
    created = client.create(avro("a"))
    client.commit(avro("a", "b"))
    old = f"{NAME}@{created.revision_id}"
    client.validate_message(parent=PROJECT, name=old, message=b'{"a": 1}', encoding=Encoding.JSON)
    with pytest.raises(exceptions.InvalidArgument, match="b: is missing"):
        client.validate_message(parent=PROJECT, name=NAME, message=b'{"a": 1}', encoding=Encoding.JSON)


@pytest.mark.parametrize(
    ("expected", "said", "call"),
    [
        (exceptions.InvalidArgument, "parent", lambda c: c.create_schema(parent="proj", schema_id="abc")),
        (exceptions.InvalidArgument, "schema_id", lambda c: c.create(avro("a"), "1st")),
        (exceptions.InvalidArgument, "schema_id", lambda c: c.create(avro("a"), "")),
        (exceptions.InvalidArgument, "schema_id", lambda c: c.create(avro("a"), "goog-x")),
        (exceptions.InvalidArgument, "schema.type", lambda c: c.create(avro("a"), "other", 0)),
        (exceptions.InvalidArgument, "schema.type", lambda c: c.create(avro("a"), "other", 77)),
        (exceptions.InvalidArgument, "schema.definition", lambda c: c.create("", "other")),
        (exceptions.InvalidArgument, "fields[0].type", lambda c: c.create(avro("a").replace("int", "tint"), "other")),
        (
            exceptions.InvalidArgument,
            "schema.definition: line 1:",
            lambda c: c.create(PROTO.replace("int32", "tint"), "other", Schema.Type.PROTOCOL_BUFFER),
        ),
        (exceptions.AlreadyExists, NAME, lambda c: c.create(avro("a"))),
        (exceptions.NotFound, "nowhere", lambda c: c.get_schema(name=f"{PROJECT}/schemas/nowhere")),
        (exceptions.NotFound, "0badf00d", lambda c: c.get_schema(name=f"{NAME}@0badf00d")),
        (exceptions.InvalidArgument, "name", lambda c: c.get_schema(name="order")),
        (exceptions.InvalidArgument, "schema.type", lambda c: c.commit(PROTO, Schema.Type.PROTOCOL_BUFFER)),
        (
            exceptions.InvalidArgument,
            "incompatible",
            lambda c: c.commit(avro("a").replace("int", "string").replace(": 0", ': ""')),
        ),
        (
            exceptions.InvalidArgument,
            "schema.name",
            lambda c: c.commit_schema(name=NAME, schema={"name": f"{NAME}2", "type_": 2, "definition": avro("a")}),
        ),
        (exceptions.NotFound, "nowhere", lambda c: c.commit(avro("a"), name=f"{PROJECT}/schemas/nowhere")),
        (exceptions.InvalidArgument, "revision", lambda c: c.rollback_schema(name=NAME)),
        (exceptions.NotFound, "0badf00d", lambda c: c.rollback_schema(name=NAME, revision_id="0badf00d")),
        (exceptions.InvalidArgument, "revision", lambda c: c.delete_schema_revision(name=NAME)),
        (exceptions.NotFound, "nowhere", lambda c: c.delete_schema(name=f"{PROJECT}/schemas/nowhere")),
        (exceptions.InvalidArgument, "page_size", lambda c: list(c.list_schemas(parent=PROJECT, page_size=-1))),
        (exceptions.InvalidArgument, "schema_spec", lambda c: c.validate_message(parent=PROJECT, encoding=1)),
        (exceptions.InvalidArgument, "encoding", lambda c: c.validate_message(parent=PROJECT, name=NAME)),
        (
            exceptions.InvalidArgument,
            "message",
            lambda c: c.validate_message(parent=PROJECT, name=NAME, message=b"\xff", encoding=1),
        ),
        (
            exceptions.MethodNotImplemented,
            "compiled_proto_schema",
            lambda c: c.validate_schema(parent=PROJECT, schema={"compiled_proto_schema": {"root_message": "A"}}),
        ),
    ],
)
def test_bad_requests_get_a_status_that_names_the_field(
    client: Client, expected: type[Exception], said: str, call: Callable[[Client], Any]
) -> None:
    before = client.create(avro("a"))
    with pytest.raises(expected) as caught:
        call(client)
    assert said in str(caught.value)
    assert list(client.list_schemas(parent=PROJECT, view=SchemaView.FULL)) == [before]


def test_everything_is_there_after_a_restart(server: Server, client: Client, tmp_path: Path) -> None:
    client.create(PROTO, kind=Schema.Type.PROTOCOL_BUFFER)
    newest = client.commit(PROTO, Schema.Type.PROTOCOL_BUFFER)
    client.create(avro("a"), "gone-later")
    client.delete_schema(name=f"{PROJECT}/schemas/gone-later")
    server.stop()
    again = Server(tmp_path / "broker.db")
    try:
        reconnected = Client(again.address)
        assert list(reconnected.list_schemas(parent=PROJECT, view=SchemaView.FULL)) == [newest]
        assert len(list(reconnected.list_schema_revisions(name=NAME))) == 2
        with pytest.raises(exceptions.InvalidArgument, match="Order has no field number 9"):
            reconnected.validate_message(parent=PROJECT, name=NAME, message=b"\x48\x01", encoding=Encoding.BINARY)
        reconnected.close()
    finally:
        again.stop()
