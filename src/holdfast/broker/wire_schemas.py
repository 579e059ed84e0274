"""Schemas and a topic's schema settings between google.pubsub.v1's messages and the model."""

from __future__ import annotations

from typing import Any

from google.pubsub_v1.types import pubsub
from google.pubsub_v1.types import schema as pb_schema

from holdfast.broker.schemas.registry import Schema
from holdfast.clock import NANOSECONDS
from holdfast.errors import Unsupported
from holdfast.model.resources import SchemaSettings

PbSchema: Any = pb_schema.Schema.pb()
PbSchemaSettings: Any = pubsub.SchemaSettings.pb()

_Type: Any = pb_schema.Schema.Type
_Encoding: Any = pb_schema.Encoding

# The wheel's name of `type` is `type_`. The last two are set by the service; what a client writes there is ignored, as
# Pub/Sub does.
_KNOWN_FIELDS = {"name", "type_", "definition", "revision_id", "revision_create_time"}


def definition_from_pb(message: Any) -> tuple[str, str]:
    """The type ("" where it is not given) and the text of a definition."""
    for descriptor, _ in message.ListFields():
        if descriptor.name not in _KNOWN_FIELDS:
            raise Unsupported(f"schema.{descriptor.name}", "this version of Holdfast does not offer it")
    return _name(_Type, message.type_), message.definition


def schema_to_pb(schema: Schema, full: bool) -> Any:
    """With its newest revision; `full` has the definition too."""
    revision = schema.newest
    message = PbSchema(name=schema.name, type_=_Type[schema.type].value, revision_id=revision.id)
    seconds, nanos = divmod(revision.created_ns, NANOSECONDS)
    message.revision_create_time.seconds, message.revision_create_time.nanos = seconds, nanos
    if full:
        message.definition = revision.definition.text
    return message


def encoding_from_pb(value: int) -> str:
    """ "" where it is not given, or not known."""
    return _name(_Encoding, value)


def settings_from_pb(message: Any) -> SchemaSettings:
    """An encoding that is not given is JSON; one that is not known stays empty, and the registry refuses it."""
    return SchemaSettings(
        schema=message.schema,
        encoding=encoding_from_pb(message.encoding or _Encoding.JSON.value),
        first_revision=message.first_revision_id,
        last_revision=message.last_revision_id,
    )


def settings_to_pb(settings: SchemaSettings) -> Any:
    return PbSchemaSettings(
        schema=settings.schema,
        encoding=_Encoding[settings.encoding].value,
        first_revision_id=settings.first_revision,
        last_revision_id=settings.last_revision,
    )


def _name(kind: Any, value: int) -> str:
    """proto3 lets clients send numbers that no version of the enum has."""
    return str(kind(value).name) if value and value in set(kind) else ""
