"""google.pubsub.v1.SchemaService. Each method is a plain async function from request to response message."""

from __future__ import annotations

from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1.types import schema as pb_schema

from holdfast.api.grpc.methods import Method
from holdfast.api.grpc.paging import page_of
from holdfast.broker.schemas.registry import Schema, SchemaRegistry
from holdfast.broker.wire_schemas import definition_from_pb, encoding_from_pb, schema_to_pb
from holdfast.errors import BadInput
from holdfast.model.names import check_project

SERVICE = "google.pubsub.v1.SchemaService"

_ListSchemasResponse: Any = pb_schema.ListSchemasResponse.pb()
_ListSchemaRevisionsResponse: Any = pb_schema.ListSchemaRevisionsResponse.pb()
_ValidateSchemaResponse: Any = pb_schema.ValidateSchemaResponse.pb()
_ValidateMessageResponse: Any = pb_schema.ValidateMessageResponse.pb()

_View: Any = pb_schema.SchemaView
_BASIC, _FULL = _View.BASIC.value, _View.FULL.value

_LARGEST_NUMBER = 10**12


class Schemas:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def methods(self) -> dict[str, Method]:
        return {
            "CreateSchema": Method(pb_schema.CreateSchemaRequest.pb(), self.create),
            "GetSchema": Method(pb_schema.GetSchemaRequest.pb(), self.get),
            "ListSchemas": Method(pb_schema.ListSchemasRequest.pb(), self.list_schemas),
            "ListSchemaRevisions": Method(pb_schema.ListSchemaRevisionsRequest.pb(), self.list_revisions),
            "CommitSchema": Method(pb_schema.CommitSchemaRequest.pb(), self.commit),
            "RollbackSchema": Method(pb_schema.RollbackSchemaRequest.pb(), self.rollback),
            "DeleteSchemaRevision": Method(pb_schema.DeleteSchemaRevisionRequest.pb(), self.delete_revision),
            "DeleteSchema": Method(pb_schema.DeleteSchemaRequest.pb(), self.delete),
            "ValidateSchema": Method(pb_schema.ValidateSchemaRequest.pb(), self.validate_schema),
            "ValidateMessage": Method(pb_schema.ValidateMessageRequest.pb(), self.validate_message),
        }

    async def create(self, request: Any) -> Any:
        check_project("parent", request.parent)
        kind, text = definition_from_pb(request.schema)
        name = f"{request.parent}/schemas/{request.schema_id}"  # a name inside the schema is ignored, as documented
        return schema_to_pb(await self._registry.create(name, kind, text), full=True)

    async def get(self, request: Any) -> Any:
        return schema_to_pb(self._registry.get(request.name), full=request.view != _BASIC)

    async def list_schemas(self, request: Any) -> Any:
        page, token = page_of(self._registry.list_schemas(request.parent), lambda schema: schema.name, request)
        schemas = [schema_to_pb(schema, full=request.view == _FULL) for schema in page]
        return _ListSchemasResponse(schemas=schemas, next_page_token=token)

    async def list_revisions(self, request: Any) -> Any:
        page, token = page_of(self._registry.list_revisions(request.name), _newest_first, request)
        schemas = [schema_to_pb(schema, full=request.view == _FULL) for schema in page]
        return _ListSchemaRevisionsResponse(schemas=schemas, next_page_token=token)

    async def commit(self, request: Any) -> Any:
        if request.schema.name not in ("", request.name):
            raise BadInput("schema.name", f"is {request.schema.name[:300]!r}, and the request's name is another")
        kind, text = definition_from_pb(request.schema)
        return schema_to_pb(await self._registry.commit(request.name, kind, text), full=True)

    async def rollback(self, request: Any) -> Any:
        name, revision_id = _name_and_revision(request)
        return schema_to_pb(await self._registry.rollback(name, revision_id), full=True)

    async def delete_revision(self, request: Any) -> Any:
        name, revision_id = _name_and_revision(request)
        return schema_to_pb(await self._registry.delete_revision(name, revision_id), full=True)

    async def delete(self, request: Any) -> Any:
        await self._registry.delete(request.name)
        return Empty()

    async def validate_schema(self, request: Any) -> Any:
        check_project("parent", request.parent)
        await self._registry.validate_schema(*definition_from_pb(request.schema))
        return _ValidateSchemaResponse()

    async def validate_message(self, request: Any) -> Any:
        check_project("parent", request.parent)
        encoding = encoding_from_pb(request.encoding)
        match request.WhichOneof("schema_spec"):
            case "name":
                await self._registry.validate_message(request.name, encoding, request.message)
            case "schema":
                kind, text = definition_from_pb(request.schema)
                await self._registry.validate_message_with(kind, text, encoding, request.message)
            case _:
                raise BadInput("schema_spec", "a schema's name, or a schema, is needed")
        return _ValidateMessageResponse()


def _name_and_revision(request: Any) -> tuple[str, str]:
    """The revision is in the name, after an @, or in the field that came before that."""
    name, _, revision_id = request.name.partition("@")
    if not (revision_id or request.revision_id):
        raise BadInput("name", "must end with @ and the id of a revision")
    return name, revision_id or request.revision_id


def _newest_first(schema: Schema) -> str:
    """Sorts as text in the order of the list, as pages need it."""
    return f"{_LARGEST_NUMBER - schema.newest.number:013}"
