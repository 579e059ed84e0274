"""`holdfast docs` and `holdfast failures`: what is there, read from the store's file or from a running process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from holdfast.cli.http import get_json
from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import print_fields, print_json, print_table
from holdfast.consumer.documents import DocumentStore
from holdfast.deadletter.presentation import failure_to_json
from holdfast.deadletter.service import Desk
from holdfast.errors import BadInput, NotFound
from holdfast.model.document import Document
from holdfast.wiring.stores import read_documents, read_failures

_data = click.option("--data", metavar="DIR", help="Directory of the files.  [default: .holdfast]")
_url = click.option("--url", help="Ask this running process, such as http://127.0.0.1:8080, instead of the file.")
_limit = click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")


# Documents.


@click.group()
def docs() -> None:
    """Read documents."""


@docs.command("get")
@click.argument("path")
@_data
@click.option("--store", metavar="URL", help="Document store.  [default: sqlite:///.holdfast/documents.db]")
@_url
@json_option
@config_option
def docs_get(
    path: str, data: str | None, store: str | None, url: str | None, as_json: bool, config: Path | None
) -> None:
    """Print the document at PATH, such as ops_services/local__checkout."""
    collection, _, document_id = path.strip("/").partition("/")
    if not collection or not document_id:
        raise BadInput("PATH", f"must look like collection/id, not {path!r}")
    if url:
        document = asyncio.run(get_json(url, f"/api/v1/documents/{collection}/{document_id}"))
    else:
        document = asyncio.run(_document(config, data, store, collection, document_id))
    if as_json:
        print_json(document)
        return
    print_fields([("path", document["path"]), *_flat(document["fields"])])


@docs.command("list")
@click.argument("collection", required=False)
@_data
@click.option("--store", metavar="URL", help="Document store.  [default: sqlite:///.holdfast/documents.db]")
@_url
@_limit
@json_option
@config_option
def docs_list(
    collection: str | None,
    data: str | None,
    store: str | None,
    url: str | None,
    limit: int,
    as_json: bool,
    config: Path | None,
) -> None:
    """List the documents of COLLECTION, or the collections."""
    if collection is None:
        _list_collections(config, data, store, url, as_json)
        return
    if url:
        found = asyncio.run(get_json(url, f"/api/v1/documents/{collection}", pageSize=limit))["documents"]
    else:
        found = asyncio.run(_documents(config, data, store, collection, limit))
    if as_json:
        print_json({"documents": found})
    else:
        print_table(["path", "fields"], [(item["path"], json.dumps(item["fields"])) for item in found])


def _list_collections(config: Path | None, data: str | None, store: str | None, url: str | None, as_json: bool) -> None:
    if url:
        names = asyncio.run(get_json(url, "/api/v1/documents"))["collections"]
    else:
        names = asyncio.run(_collections(config, data, store))
    if as_json:
        print_json({"collections": names})
    else:
        print_table(["collection"], [(name,) for name in names])


@asynccontextmanager
async def _document_store(config: Path | None, data: str | None, store: str | None) -> AsyncIterator[DocumentStore]:
    opened = await read_documents(settings_from(config, data=data, consumer__store=store))
    try:
        yield opened
    finally:
        await opened.close()


async def _document(
    config: Path | None, data: str | None, store: str | None, collection: str, document_id: str
) -> dict[str, Any]:
    async with _document_store(config, data, store) as opened:
        document = await opened.get(collection, document_id)
    if document is None:
        raise NotFound(f"there is no document {collection}/{document_id}; `holdfast docs list {collection}` shows them")
    return _document_json(document)


async def _documents(
    config: Path | None, data: str | None, store: str | None, collection: str, limit: int
) -> list[dict[str, Any]]:
    async with _document_store(config, data, store) as opened:
        return [_document_json(document) for document in (await opened.list(collection, limit)).documents]


async def _collections(config: Path | None, data: str | None, store: str | None) -> list[str]:
    async with _document_store(config, data, store) as opened:
        return list(await opened.collections())


def _document_json(document: Document) -> dict[str, Any]:
    return {"id": document.id, "path": document.path, "fields": dict(document.fields)}


def _flat(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """source: {topic: x} is shown as source.topic x."""
    flat: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)))
    return flat


# Failures.


@click.group()
def failures() -> None:
    """Read failed messages."""


@failures.command("list")
@click.option("--status", default="", help="Only those with this status.")
@click.option("--reason", default="", help="Only those with this failure reason.")
@_data
@click.option("--failures", "store", metavar="URL", help="Failure store.  [default: sqlite:///.holdfast/failures.db]")
@_url
@_limit
@json_option
@config_option
def failures_list(
    status: str,
    reason: str,
    data: str | None,
    store: str | None,
    url: str | None,
    limit: int,
    as_json: bool,
    config: Path | None,
) -> None:
    """List failed messages, newest first."""
    if url:
        wanted = {"status": status, "reason": reason, "pageSize": limit}
        found = asyncio.run(get_json(url, "/api/v1/failures", **wanted))["failures"]
    else:
        found = asyncio.run(_failures(config, data, store, status, reason, limit))
    if as_json:
        print_json({"failures": found})
        return
    if not found:
        click.echo("no failed messages")
        return
    print_table(
        ["id", "created", "reason", "status", "subscription", "error"],
        [
            (
                item["id"],
                item["createdAt"][:19].replace("T", " "),
                item["failureReason"],
                item["status"],
                item["subscription"].rsplit("/", 1)[-1],
                item["errorDetails"],
            )
            for item in found
        ],
    )
    click.echo("\n`holdfast failures show ID` shows one of them whole.")


@failures.command("show")
@click.argument("failure_id", metavar="ID", type=int)
@_data
@click.option("--failures", "store", metavar="URL", help="Failure store.  [default: sqlite:///.holdfast/failures.db]")
@_url
@json_option
@config_option
def failures_show(
    failure_id: int, data: str | None, store: str | None, url: str | None, as_json: bool, config: Path | None
) -> None:
    """Show one failed message whole, with its payload."""
    if url:
        failure = asyncio.run(get_json(url, f"/api/v1/failures/{failure_id}"))
    else:
        failure = asyncio.run(_failure(config, data, store, failure_id))
    if as_json:
        print_json(failure)
    else:
        print_fields(_flat({name: value for name, value in failure.items() if value not in (None, "", {})}))


@asynccontextmanager
async def _opened_desk(config: Path | None, data: str | None, store: str | None) -> AsyncIterator[Desk]:
    opened = read_failures(settings_from(config, data=data, desk__failures=store))
    try:
        yield Desk(opened)
    finally:
        await opened.close()


async def _failures(
    config: Path | None, data: str | None, store: str | None, status: str, reason: str, limit: int
) -> list[dict[str, Any]]:
    async with _opened_desk(config, data, store) as desk:
        page = await desk.list_failures(status=status, reason=reason, page_size=limit)
        return [failure_to_json(failure, payload=False) for failure in page.failures]


async def _failure(config: Path | None, data: str | None, store: str | None, failure_id: int) -> dict[str, Any]:
    async with _opened_desk(config, data, store) as desk:
        return failure_to_json(await desk.get_failure(failure_id), payload=True)
