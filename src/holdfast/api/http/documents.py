"""GET /api/v1/documents: collections, their documents page by page, one document."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Operation,
    api_route,
    list_of,
    map_of,
    record,
    text,
)
from holdfast.api.http.errors import paging
from holdfast.consumer.documents import DocumentStore
from holdfast.errors import NotFound
from holdfast.model.document import Document


def routes(store: DocumentStore) -> list[ApiRoute]:
    async def list_collections(request: Request) -> Response:
        return JSONResponse({"collections": list(await store.collections())})

    async def list_documents(request: Request) -> Response:
        page_size, token = paging(request)
        page = await store.list(request.path_params["collection"], page_size, token)
        return JSONResponse(
            {
                "documents": [document_json(document) for document in page.documents],
                "nextPageToken": page.next_page_token,
            }
        )

    async def get_document(request: Request) -> Response:
        collection, document_id = request.path_params["collection"], request.path_params["id"]
        found = await store.get(collection, document_id)
        if found is None:
            raise NotFound(f"there is no document {collection}/{document_id}")
        return JSONResponse(document_json(found))

    return [
        api_route("GET", "/api/v1/documents", list_collections, _COLLECTIONS),
        api_route("GET", "/api/v1/documents/{collection}", list_documents, _DOCUMENTS),
        api_route("GET", "/api/v1/documents/{collection}/{id}", get_document, _DOCUMENT),
    ]


def document_json(document: Document) -> dict[str, Any]:
    return {"id": document.id, "path": document.path, "fields": dict(document.fields)}


# What they say of themselves.

_SCHEMA = record({"id": text(), "path": text("collection/id"), "fields": map_of({})}, title="Document")

_COLLECTIONS = Operation(
    "The names of all collections",
    tag="documents",
    answer=Answer(record({"collections": list_of(text())}, title="Collections"), "The names"),
)

_DOCUMENTS = Operation(
    "The documents of a collection",
    tag="documents",
    parameters=PAGING,
    answer=Answer(
        record({"documents": list_of(_SCHEMA), "nextPageToken": NEXT_PAGE_TOKEN}, title="DocumentPage"), "A page"
    ),
    errors=(400,),
)

_DOCUMENT = Operation("One document", tag="documents", answer=Answer(_SCHEMA, "The document"), errors=(400, 404))
