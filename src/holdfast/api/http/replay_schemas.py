"""What replays look like in the API, as JSON Schema."""

from __future__ import annotations

from holdfast.api.http.describing import (
    NEXT_PAGE_TOKEN,
    Schema,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.api.http.selecting import SELECTION
from holdfast.deadletter.replay.jobs import ItemState, JobState, Target
from holdfast.deadletter.replay.options import FASTEST, MOST, NAMES

_WHOLE = {"minimum": 0, "maximum": MOST}

OPTIONS: Schema = record(
    {
        "target": one_of([*Target], "Where to: the failing subscription alone, unless told otherwise"),
        "topic": text("Of the target `topic`: an id, or a full path"),
        "perSecond": number("Messages a second at most; 0: no bound", minimum=0, maximum=FASTEST),
        "concurrency": integer("Messages that are out at once at most; 0: no bound", **_WHOLE),
        "canary": integer("So many go first, and the rest only when they ended well; 0: none", **_WHOLE),
        "stopAbove": number("It pauses when more than this share of what ended has failed", minimum=0, maximum=1),
        "stopAfter": integer("… but not before so many have ended", **_WHOLE),
    },
    title="ReplayOptions",
    optional=NAMES,
    closed=True,
)

REQUEST: Schema = record(
    {"selection": SELECTION, "options": OPTIONS, "dryRun": boolean("Only say what it would do")},
    title="ReplayRequest",
    optional=("options", "dryRun"),
    closed=True,
)

JOB: Schema = record(
    {
        "id": integer(),
        "state": one_of([*JobState]),
        "why": text("Why it is paused"),
        "trouble": text("What it waits for, such as a broker that does not answer"),
        "selection": SELECTION,
        "options": OPTIONS,
        "actor": text("Who made it"),
        "total": integer("Messages that it has"),
        "counts": record({str(state): integer() for state in ItemState}),
        "ratePerSecond": number("What really goes out now, by this desk"),
        "secondsLeft": or_null(number("At its own rate")),
        "createdAt": or_null(time()),
        "startedAt": or_null(time()),
        "endedAt": or_null(time()),
        "version": integer("One more with every change"),
    },
    title="Replay",
)

JOB_PAGE: Schema = record({"replays": list_of(JOB), "nextPageToken": NEXT_PAGE_TOKEN})

ITEM: Schema = record(
    {
        "position": integer("The order in which they are sent"),
        "failureId": integer(),
        "state": one_of([*ItemState]),
        "messageId": text("Of the message that was sent"),
        "note": text("Why it was skipped or has failed"),
        "sentAt": or_null(time()),
    },
    title="ReplayItem",
)

ITEM_PAGE: Schema = record({"items": list_of(ITEM), "nextPageToken": NEXT_PAGE_TOKEN})

PLAN: Schema = record(
    {
        "selected": integer("Failures that are meant"),
        "toSend": integer("How many of them would be sent"),
        "options": OPTIONS,
        "seconds": or_null(number("How long that takes at the set rate")),
        "groups": list_of(
            record({"group": text("Its fingerprint"), "subscription": text(), "reason": text(), "count": integer()})
        ),
        "destinations": list_of(record({"name": text("A subscription or a topic"), "count": integer()})),
        "skipped": list_of(record({"why": text(), "count": integer()})),
    },
    title="ReplayPlan",
)

SHADOW_REPORT: Schema = record(
    {
        "wouldPass": integer(),
        "wouldFail": integer(),
        "unknown": list_of(record({"why": text(), "count": integer()})),
        "groups": list_of(
            record(
                {
                    "fingerprint": text("Of the new error"),
                    "count": integer(),
                    "example": text(),
                    "failureIds": list_of(integer()),
                }
            ),
            "How they would fail",
        ),
        "documents": list_of(record({"collection": text(), "count": integer()}), "What would be written"),
        "sampleDocuments": list_of(text()),
    },
    title="ShadowReport",
)
