"""`holdfast schemas`."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import IO, Any

import click

from holdfast.cli.operate.client import CALL, Connection, Endpoint, connected, endpoint_options
from holdfast.cli.operate.shown import short_name, show_created, show_deleted, show_done, show_list, show_one
from holdfast.cli.operate.values import contents
from holdfast.cli.options import Commands, json_option
from holdfast.errors import BadInput

_TYPES = {"avro": "AVRO", "protobuf": "PROTOCOL_BUFFER"}
_SUFFIXES = {".avsc": "avro", ".avro": "avro", ".json": "avro", ".proto": "protobuf"}

_COLUMNS = {
    "schema": short_name,
    "type": lambda schema: schema.get("type", ""),
    "revision": lambda schema: schema.get("revisionId", ""),
    "created": lambda schema: schema.get("revisionCreateTime", "")[:19].replace("T", " "),
}

_type = click.option(
    "--type", "type_", type=click.Choice(list(_TYPES)), help="Kind of schema.  [default: as the file's name ends]"
)
_file = click.option("--file", type=click.File("rb"), help="File with the definition; - is standard input.")


@click.group(cls=Commands)
def schemas() -> None:
    """List, create, show and delete schemas; validate against them."""


@schemas.command("list")
@json_option
@endpoint_options
def list_schemas(endpoint: Endpoint, as_json: bool) -> None:
    """List the schemas of the project."""
    with connected(endpoint) as connection:
        found = list(connection.schemas.list_schemas(parent=endpoint.project_path, **CALL))
    show_list("schemas", found, _COLUMNS, f"project {endpoint.project} at {endpoint}", as_json)


@schemas.command("create")
@click.argument("schema")
@_type
@_file
@click.option("--definition", help="The definition itself, instead of a file.")
@json_option
@endpoint_options
def create_schema(
    endpoint: Endpoint,
    schema: str,
    type_: str | None,
    file: IO[bytes] | None,
    definition: str | None,
    as_json: bool,
) -> None:
    """Create SCHEMA from an Avro or Protocol Buffers definition."""
    path = endpoint.path("schemas", schema)
    parent, _, schema_id = path.partition("/schemas/")
    defined = _definition(type_, file, definition)
    with connected(endpoint) as connection:
        request = {"parent": parent, "schema_id": schema_id, "schema": {"name": path, **defined}}
        created = connection.schemas.create_schema(request=request, **CALL)
    show_created(created, as_json)


@schemas.command("show")
@click.argument("schema")
@json_option
@endpoint_options
def show_schema(endpoint: Endpoint, schema: str, as_json: bool) -> None:
    """Show SCHEMA with its definition; ID@REVISION shows an older one."""
    path = endpoint.path("schemas", schema)
    with connected(endpoint) as connection:
        found = connection.schemas.get_schema(name=path, **CALL)
    show_one(found, as_json, text="definition")


@schemas.command("delete")
@click.argument("schema")
@json_option
@endpoint_options
def delete_schema(endpoint: Endpoint, schema: str, as_json: bool) -> None:
    """Delete SCHEMA with all its revisions."""
    path = endpoint.path("schemas", schema)
    with connected(endpoint) as connection:
        connection.schemas.delete_schema(name=path, **CALL)
    show_deleted(path, as_json)


@schemas.command("validate")
@click.argument("schema", required=False)
@_type
@_file
@click.option("--definition", help="The definition itself, instead of a file.")
@click.option("--message", help="A message that should fit.")
@click.option("--message-file", type=click.File("rb"), help="File with such a message; - is standard input.")
@click.option(
    "--encoding",
    type=click.Choice(["json", "binary"]),
    default="json",
    show_default=True,
    help="How the message is written.",
)
@json_option
@endpoint_options
def validate(
    endpoint: Endpoint,
    schema: str | None,
    type_: str | None,
    file: IO[bytes] | None,
    definition: str | None,
    message: str | None,
    message_file: IO[bytes] | None,
    encoding: str,
    as_json: bool,
) -> None:
    """Check a definition, or a message against SCHEMA or against a definition. Exit code 1: it does not fit."""
    if schema is not None and (file is not None or definition is not None):
        raise click.UsageError("Give SCHEMA, or --file or --definition.")
    if schema is not None and message is None and message_file is None:
        raise click.UsageError("Give --message or --message-file: SCHEMA itself was checked when it was created.")
    checked = _message(message, message_file)
    if schema is not None:
        against: dict[str, Any] = {"name": endpoint.path("schemas", schema)}
    else:
        against = {"schema": _definition(type_, file, definition)}
    with connected(endpoint) as connection:
        if checked is None:
            _validate_definition(connection, against)
        else:
            _validate_message(connection, against, checked, encoding)
    show_done("valid", {"valid": True}, as_json)


def _validate_definition(connection: Connection, against: dict[str, Any]) -> None:
    request = {"parent": connection.endpoint.project_path, **against}
    connection.schemas.validate_schema(request=request, **CALL)


def _validate_message(connection: Connection, against: dict[str, Any], message: bytes, encoding: str) -> None:
    request = {
        "parent": connection.endpoint.project_path,
        "message": message,
        "encoding": encoding.upper(),
        **against,
    }
    connection.schemas.validate_message(request=request, **CALL)


def _message(message: str | None, file: IO[bytes] | None) -> bytes | None:
    if message is not None and file is not None:
        raise click.UsageError("Give --message or --message-file, not both.")
    if file is not None:
        return contents("--message-file", file)
    return os.fsencode(message) if message is not None else None


def _definition(type_: str | None, file: IO[bytes] | None, definition: str | None) -> dict[str, str]:
    if (file is None) == (definition is None):
        raise click.UsageError("Give the definition by --file or --definition.")
    if type_ is None and file is not None:
        type_ = _SUFFIXES.get(PurePath(file.name).suffix)
    if type_ is None:
        raise click.UsageError("Give --type avro or --type protobuf.")
    return {"type_": _TYPES[type_], "definition": _text(contents("--file", file)) if file else definition or ""}


def _text(definition: bytes) -> str:
    try:
        return definition.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("--file", "is not valid UTF-8") from error
