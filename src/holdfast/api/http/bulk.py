"""/api/v1/failures:…: what is done to a whole selection of failures at once: patched, held, released, erased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.http.describing import (
    ACTOR,
    Answer,
    ApiRoute,
    Body,
    Operation,
    Schema,
    api_route,
    boolean,
    integer,
    list_of,
    map_of,
    record,
    text,
)
from holdfast.api.http.edits import DIFFERENCE, FINDING, LONGEST_COMMENT, change_schemas
from holdfast.api.http.exact import exact_object
from holdfast.api.http.requests import actor_of, json_object, string
from holdfast.api.http.selecting import SELECTION
from holdfast.api.http.sight import REVEAL, redaction_for
from holdfast.api.http.streaming import answer_of
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.edits.bulk import MOST_ROWS, Applied, Asked, BulkEditing, Preview
from holdfast.deadletter.edits.changes import BULK_FORMS, parse_change
from holdfast.deadletter.edits.shown import differences_to_json, findings_to_json
from holdfast.deadletter.keeping import Keeping
from holdfast.deadletter.progress import Reasons
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.sight import Sight
from holdfast.errors import BadInput
from holdfast.model.exact_json import dump_exact_json

LONGEST_DIGEST = 1_000_000


def routes(browsing: Browsing, patching: BulkEditing, keeping: Keeping, sight: Sight) -> list[ApiRoute]:
    async def patch_failures(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        given, plain = await exact_object(request, ("selection", *BULK_FORMS, "preview", "digest", "comment"))
        change = parse_change(given, BULK_FORMS)
        told = dump_exact_json({name: given[name] for name in ("selection", *BULK_FORMS) if name in given})
        asked = Asked(_selection(browsing, plain), change, told)
        if _flag(plain, "preview", True):
            return await answer_of(
                request, patching.preview(asked, redaction), lambda preview: _preview_to_json(preview, redaction)
            )
        digest = string(plain, "digest", LONGEST_DIGEST)
        comment = string(plain, "comment", LONGEST_COMMENT, default="")
        applying = patching.apply(asked, digest, redaction, actor=actor_of(request), comment=comment)
        return await answer_of(request, applying, _applied_to_json)

    async def hold_failures(request: Request) -> Response:
        return await hold(request, True)

    async def release_failures(request: Request) -> Response:
        return await hold(request, False)

    async def hold(request: Request, on: bool) -> Response:
        redaction = await redaction_for(request, sight)
        given = await json_object(request, ("selection", "preview"))
        selection = _selection(browsing, given)
        if _flag(given, "preview", False):
            return await counted(selection, redaction)
        return JSONResponse({"changed": await keeping.hold(selection, on, redaction, actor_of(request))})

    async def erase_failures(request: Request) -> Response:
        redaction = await redaction_for(request, sight)
        given = await json_object(request, ("selection", "preview", "confirm"))
        selection = _selection(browsing, given)
        if _flag(given, "preview", False):
            return await counted(selection, redaction)
        confirm = given.get("confirm")
        if type(confirm) is not int or confirm < 0:
            raise BadInput("confirm", "must be how many are to be erased, as a preview counts them")
        return JSONResponse({"erased": await keeping.erase(selection, confirm, redaction, actor_of(request))})

    async def counted(selection: Selection, redaction: Redaction) -> Response:
        meant = await keeping.meant(selection, redaction)
        return JSONResponse({"count": meant.number, "held": meant.held, "free": meant.free})

    return [
        api_route("POST", "/api/v1/failures:patch", patch_failures, _PATCH),
        api_route("POST", "/api/v1/failures:hold", hold_failures, _HOLD),
        api_route("POST", "/api/v1/failures:release", release_failures, _RELEASE),
        api_route("POST", "/api/v1/failures:erase", erase_failures, _ERASE),
    ]


def _selection(browsing: Browsing, given: Mapping[str, Any]) -> Selection:
    """Every failure is meant only where that is said, as {}."""
    if "selection" not in given:
        raise BadInput("selection", "is missing; {} means every failure")
    return browsing.selection_from_json(given["selection"])


def _flag(given: Mapping[str, Any], name: str, absent: bool) -> bool:
    value = given.get(name, absent)
    if not isinstance(value, bool):
        raise BadInput(name, "must be true or false")
    return value


def _preview_to_json(preview: Preview, redaction: Redaction) -> dict[str, Any]:
    return {
        "matched": preview.matched,
        "wouldChange": len(preview.rows),
        "unchanged": preview.unchanged,
        "notApplied": reasons_to_json(preview.not_applied),
        "validation": {
            "checked": preview.checked,
            "passed": preview.passed,
            "complaints": reasons_to_json(preview.complaints),
            "skipped": reasons_to_json(preview.skipped),
        },
        "samples": [
            {
                "id": sample.failure_id,
                "differences": differences_to_json(sample.before, sample.after, redaction),
                "findings": findings_to_json(sample.findings, redaction, sample.before, sample.after),
            }
            for sample in preview.samples
        ],
        "digest": preview.digest,
    }


def _applied_to_json(applied: Applied) -> dict[str, Any]:
    return {"changed": applied.changed, "leftOut": reasons_to_json(applied.left_out)}


def reasons_to_json(reasons: Reasons) -> list[dict[str, Any]]:
    return [
        {"reason": reason, "count": count, "examples": reasons.examples[reason]}
        for reason, count in reasons.counts.most_common()
    ]


# What they say of themselves.

REASONS = list_of(
    record(
        {"reason": text(), "count": integer(), "examples": list_of(integer(), "A few of them")},
        title="Reason",
    ),
    "The most frequent first",
)

_PREVIEW = boolean("Count and change nothing")

_PREVIEWED: dict[str, Schema] = {
    "matched": integer(),
    "wouldChange": integer(),
    "unchanged": integer("They are so already"),
    "notApplied": REASONS,
    "validation": record(
        {
            "checked": integer("Of those that would change; the first ones of many"),
            "passed": map_of(integer(), "By check"),
            "complaints": REASONS,
            "skipped": REASONS,
        }
    ),
    "samples": list_of(
        record({"id": integer(), "differences": list_of(DIFFERENCE), "findings": list_of(FINDING)}), "A few of them"
    ),
    "digest": text("To be given when it is applied"),
}
_APPLIED: dict[str, Schema] = {"changed": integer(), "leftOut": REASONS}

_CHANGES = change_schemas(*BULK_FORMS)

_PATCH = Operation(
    "Edit a whole selection, after a preview",
    f"Exactly one of patch, merge and set, for at most {MOST_ROWS} failures. A preview gives a digest; with it and "
    "`preview: false` the same body applies what was seen, and leaves out what has changed meanwhile. With "
    "`Accept: application/x-ndjson` the answer is lines of JSON that tell the progress, and the result at last.",
    tag="failures",
    parameters=(ACTOR, REVEAL),
    body=Body(
        record(
            {
                "selection": SELECTION,
                **_CHANGES,
                "preview": {**_PREVIEW, "default": True},
                "digest": text("Of the preview, to apply it"),
                "comment": text(maxLength=LONGEST_COMMENT),
            },
            optional=(*_CHANGES, "preview", "digest", "comment"),
            closed=True,
        ),
        {"selection": {"reason": "SCHEMA_VALIDATION_ERROR"}, "merge": {"json": {"unit": "K"}}, "preview": True},
    ),
    answer=Answer(
        record({**_PREVIEWED, **_APPLIED}, optional=(*_PREVIEWED, *_APPLIED)), "The preview, or what was applied"
    ),
    errors=(400, 403),
)

_COUNTED: dict[str, Schema] = {
    "count": integer("Meant by the selection"),
    "held": integer("Of these, under legal hold"),
    "free": integer("Of these, not"),
}


def _selecting(summary: str, description: str, done: dict[str, Schema], more: dict[str, Schema]) -> Operation:
    optional = ("preview", *more)
    return Operation(
        summary,
        description,
        tag="failures",
        parameters=(ACTOR, REVEAL),
        body=Body(
            record({"selection": SELECTION, "preview": _PREVIEW, **more}, optional=optional, closed=True),
            {"selection": {"status": ["replayed"]}, "preview": True},
        ),
        answer=Answer(record({**_COUNTED, **done}, optional=(*_COUNTED, *done)), "The counts, or what was done"),
        errors=(400, 403, 409) if more else (400, 403),
    )


_HOLD = _selecting("Put a selection under legal hold", "", {"changed": integer()}, {})
_RELEASE = _selecting("End the legal hold of a selection", "", {"changed": integer()}, {})
_ERASE = _selecting(
    "Erase a selection for good",
    "With everything that belongs to it. What is under legal hold stays.",
    {"erased": integer()},
    {"confirm": integer("How many are to be erased: `free` of a preview; 409 when it would be another number")},
)
