"""/api/v1/audit: who did what to which message, and whether the trail is whole."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    MOMENT,
    NEXT_PAGE_TOKEN,
    PAGING,
    Answer,
    ApiRoute,
    Operation,
    Parameter,
    api_route,
    boolean,
    integer,
    list_of,
    map_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.errors import paging
from holdfast.api.http.requests import query
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.presentation import entry_to_json, verdict_to_json

FILTERS = ("actor", "action", "target", "since", "until")


def routes(browsing: Browsing) -> list[ApiRoute]:
    async def list_audit(request: Request) -> Response:
        wanted = browsing.audit_filter(query(request, (*FILTERS, "pageSize", "pageToken")))
        page = await browsing.list_audit(wanted, *paging(request))
        return JSONResponse(
            {"entries": [entry_to_json(entry) for entry in page.entries], "nextPageToken": page.next_page_token}
        )

    async def verify_audit(request: Request) -> Response:
        head = query(request, ("head",)).get("head", "")
        return JSONResponse(verdict_to_json(await browsing.verify_audit(head)))

    return [
        api_route("GET", "/api/v1/audit", list_audit, _LIST),
        api_route("GET", "/api/v1/audit/verify", verify_audit, _VERIFY),
    ]


# What they say of themselves.

ENTRY = record(
    {
        "number": integer("1, 2, 3 … without holes"),
        "at": or_null(time()),
        "actor": text(),
        "action": text("A verb, such as `failure.replay`"),
        "target": text("What it was done to"),
        "details": map_of({}),
        "previous": text("The hash of the entry before"),
        "hash": text("SHA-256 over all of it"),
    },
    title="AuditEntry",
)

_VERDICT = record(
    {
        "ok": boolean(),
        "entry": integer("The first one that is not what it was, else the last one"),
        "head": text("The hash of the last good one: note it elsewhere, and nobody can cut the trail off unseen"),
        "problem": text("What is wrong with it; empty when nothing is"),
    },
    title="Verdict",
)

_LIST = Operation(
    "The audit trail, newest first",
    tag="audit",
    parameters=(
        Parameter("actor", "Who did it"),
        Parameter("action", "What was done", example="group.resolve"),
        Parameter("target", "To what it was done", example="groups/5f2b8c1d9e3a4f60"),
        Parameter("since", "Since then: RFC 3339, or so long ago, such as `24h`", MOMENT),
        Parameter("until", "Before then", MOMENT),
        *PAGING,
    ),
    answer=Answer(record({"entries": list_of(ENTRY), "nextPageToken": NEXT_PAGE_TOKEN}, title="AuditPage"), "A page"),
    errors=(400,),
)

_VERIFY = Operation(
    "Whether the trail is whole",
    "Reads all of it. With `head`, the entry with that hash must still be among them.",
    tag="audit",
    parameters=(Parameter("head", "The hash of an entry, as somebody noted it"),),
    answer=Answer(_VERDICT, "The verdict", example={"ok": True, "entry": 17, "head": "9f…", "problem": ""}),
    errors=(400,),
)
