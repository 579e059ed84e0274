"""`holdfast docs`: what documents there are, read from the store's file or from a running process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from holdfast.cli.http import get_json
from holdfast.cli.options import Commands, config_option, json_option, settings_from
from holdfast.cli.output import print_fields, print_json, print_table
from holdfast.cli.values import flat
from holdfast.consumer.documents import DocumentStore
from holdfast.errors import BadInput, NotFound
from holdfast.model.document import Document
from holdfast.wiring.stores import read_documents

_data = click.option("--data", metavar="DIR", help="Directory of the files.  [default: .holdfast]")
_url = click.option("--url", help="Ask this running process, such as http://127.0.0.1:8080, instead of the file.")
_limit = click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")


# Documents.


@click.group(cls=Commands)
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
    print_fields([("path", document["path"]), *flat(document["fields"])])


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
