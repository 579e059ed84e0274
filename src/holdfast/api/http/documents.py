"""GET /api/v1/documents: collections, their documents page by page, one document."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.http.errors import paging, with_errors
from holdfast.consumer.documents import DocumentStore
from holdfast.errors import NotFound
from holdfast.model.document import Document


def routes(store: DocumentStore) -> list[Route]:
    async def collections(request: Request) -> Response:
        return JSONResponse({"collections": list(await store.collections())})

    async def documents(request: Request) -> Response:
        page_size, token = paging(request)
        page = await store.list(request.path_params["collection"], page_size, token)
        return JSONResponse(
            {
                "documents": [document_json(document) for document in page.documents],
                "nextPageToken": page.next_page_token,
            }
        )

    async def document(request: Request) -> Response:
        collection, document_id = request.path_params["collection"], request.path_params["id"]
        found = await store.get(collection, document_id)
        if found is None:
            raise NotFound(f"there is no document {collection}/{document_id}")
        return JSONResponse(document_json(found))

    return [
        Route("/api/v1/documents", with_errors(collections)),
        Route("/api/v1/documents/{collection}", with_errors(documents)),
        Route("/api/v1/documents/{collection}/{id}", with_errors(document)),
    ]


def document_json(document: Document) -> dict[str, Any]:
    return {"id": document.id, "path": document.path, "fields": dict(document.fields)}
