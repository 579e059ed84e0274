"""/api/v1/failures/{id}: edits, what they change, and whether they would pass."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.http.describing import (
    ACTOR,
    IF_MATCH,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Parameter,
    Schema,
    anything,
    api_route,
    boolean,
    integer,
    list_of,
    map_of,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.exact import ExactJSONResponse, exact_object
from holdfast.api.http.failure_schemas import FAILURE_ID
from holdfast.api.http.failures import failure_id
from holdfast.api.http.requests import actor_of, expected_version, query, string
from holdfast.api.http.sight import REVEAL, redaction_for
from holdfast.deadletter.edits.changes import FORMS, parse_change
from holdfast.deadletter.edits.editing import ORIGINAL, Editing
from holdfast.deadletter.edits.shown import differences_to_json, findings_to_json, revisions_to_json
from holdfast.deadletter.sight import Sight
from holdfast.errors import BadInput

LONGEST_COMMENT = 1000


def routes(editing: Editing, sight: Sight) -> list[ApiRoute]:
    async def list_revisions(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        revisions = await editing.revisions(failure_id(request))
        return ExactJSONResponse({"revisions": revisions_to_json(revisions, redaction)})

    async def diff_revisions(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        given = query(request, ("from", "to"))
        old = _number("from", given["from"]) if "from" in given else ORIGINAL
        new = _number("to", given["to"]) if "to" in given else None
        before, after = await editing.contents(failure_id(request), old, new)
        differences = differences_to_json(before.content, after.content, redaction)
        return ExactJSONResponse({"from": before.number, "to": after.number, "differences": differences})

    async def edit_failure(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        given, plain = await exact_object(request, (*FORMS, "comment", "version"))
        edited = await editing.edit(
            failure_id(request),
            parse_change(given),
            redaction,
            actor=actor_of(request),
            comment=string(plain, "comment", LONGEST_COMMENT, default=""),
            version=expected_version(request, plain),
        )
        after = edited.after.content
        findings = await editing.findings(edited.failure, after)
        return ExactJSONResponse(
            {
                "revision": edited.after.number,
                "version": edited.failure.version,
                "differences": differences_to_json(edited.before, after, redaction),
                "findings": findings_to_json(findings, redaction, edited.before, after),
            },
            201,
        )

    async def validate_failure(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        given, plain = await exact_object(request, (*FORMS, "revision"))
        number = _number("revision", str(plain["revision"])) if "revision" in plain else None
        if number is not None and len(given) > 1:
            raise BadInput("revision", "a change is of the newest one: only one of them can be given")
        change = parse_change(given) if given and number is None else None
        content, findings = await editing.validate(failure_id(request), redaction, change, number)
        return ExactJSONResponse(
            {
                "ok": not any(finding.complaints for finding in findings),
                "findings": findings_to_json(findings, redaction, content),
            }
        )

    one = "/api/v1/failures/{id}"
    return [
        api_route("GET", f"{one}/revisions", list_revisions, _REVISIONS),
        api_route("GET", f"{one}/diff", diff_revisions, _DIFF),
        api_route("POST", f"{one}:edit", edit_failure, _EDIT),
        api_route("POST", f"{one}:validate", validate_failure, _VALIDATE),
    ]


def _number(name: str, given: str) -> int:
    if given.isascii() and given.isdecimal() and len(given) <= 9:
        return int(given)
    raise BadInput(name, f"must be the number of a revision, not {given[:64]!r}; 0 is the original")


# What they say of themselves.

_REVISION = record(
    {
        "number": integer("0 is the original"),
        "author": text(),
        "comment": text(),
        "createdAt": or_null(time()),
        "attributes": map_of(text()),
        "orderingKey": text(),
        "redacted": list_of(text(), "What is hidden of it, as JSON Pointers; absent where nothing is"),
        "data": text("The payload in base64; absent where some of it is redacted", contentEncoding="base64"),
        "text": text("The payload, where it is UTF-8"),
        "json": anything("The payload, where it is JSON"),
    },
    title="WholeRevision",
    optional=("redacted", "data", "text", "json"),
)

DIFFERENCE = record(
    {
        "path": text("A JSON Pointer: /json/…, /text, /data, /attributes/…, /orderingKey"),
        "kind": one_of(["added", "removed", "changed"]),
        "old": anything("Absent for what was added"),
        "new": anything("Absent for what was removed"),
    },
    title="Difference",
    optional=("old", "new"),
)

FINDING = record(
    {
        "check": one_of(["schema", "route"]),
        "ok": {"type": ["boolean", "null"], "description": "null: it could not be made"},
        "skipped": text("Why it could not be made"),
        "complaints": list_of(
            record(
                {"path": text("A JSON Pointer; empty: all of it"), "expected": text(), "actual": text()},
                title="Complaint",
            )
        ),
    },
    title="Finding",
)


def change_schemas(*forms: str) -> dict[str, Schema]:
    told: dict[str, Schema] = {
        "patch": list_of(anything(), "JSON Patch, RFC 6902"),
        "merge": map_of(anything(), "JSON Merge Patch, RFC 7396"),
        "set": map_of(anything(), "Values by JSON Pointer: replaces what is there, adds what is not"),
        "content": map_of(anything(), "These parts anew: json, text or data (base64), attributes, orderingKey"),
        "undo": integer("As this revision was; 0 is the original", minimum=0),
    }
    return {form: told[form] for form in forms}


def _body(optional: dict[str, Any], example: Any, required: bool = True) -> Body:
    properties = {**change_schemas(*FORMS), **optional}
    return Body(record(properties, optional=tuple(properties), closed=True), example, required=required)


_REVISIONS = Operation(
    "The original and its edits, whole",
    tag="failures",
    parameters=(FAILURE_ID, REVEAL),
    answer=Answer(record({"revisions": list_of(_REVISION, "Oldest first")}), "The revisions"),
    errors=(403, 404),
)

_DIFF = Operation(
    "What differs between two revisions",
    tag="failures",
    parameters=(
        FAILURE_ID,
        Parameter("from", "A revision; 0, the original, where it is absent", integer(minimum=0)),
        Parameter("to", "A revision; the newest where it is absent", integer(minimum=0)),
        REVEAL,
    ),
    answer=Answer(record({"from": integer(), "to": integer(), "differences": list_of(DIFFERENCE)}), "The differences"),
    errors=(400, 403, 404),
)

_EDIT = Operation(
    "A new revision, which is what is sent from now on",
    "Exactly one of patch, merge, set, content and undo. The original is never changed.",
    tag="failures",
    parameters=(FAILURE_ID, ACTOR, IF_MATCH, REVEAL),
    body=_body(
        {
            "comment": text(maxLength=LONGEST_COMMENT),
            "version": integer("The version that is meant; 409 when it is another by now", minimum=1),
        },
        {"set": {"/json/latitude": 39.7596}, "version": 1},
    ),
    answer=Answer(
        record(
            {
                "revision": integer(),
                "version": integer(),
                "differences": list_of(DIFFERENCE),
                "findings": list_of(FINDING, "Whether it would pass; it is kept in any case"),
            }
        ),
        "The new revision",
        status=201,
    ),
    errors=(400, 403, 404, 409),
)

_VALIDATE = Operation(
    "Whether it would pass where it is to be sent",
    "Of a revision, of a change that is not kept, or of the newest revision. The schema of its topic is asked, and the "
    "handler of the consumer in this process, without an effect.",
    tag="failures",
    parameters=(FAILURE_ID, REVEAL),
    body=_body({"revision": integer(minimum=0)}, {"set": {"/json/latitude": 39.7596}}, required=False),
    answer=Answer(record({"ok": boolean("No check complains"), "findings": list_of(FINDING)}), "The findings"),
    errors=(400, 403, 404),
)
