"""The differences from Google's emulator that are meant to be, in one table. docs/differences.md has the same one, and
each row has an example that must show it: a row that is no longer true fails a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.differential import examples as e
from tests.differential.operations import Operation

if TYPE_CHECKING:
    from tests.differential.side_by_side import Difference

Fits: TypeAlias = "Callable[[Difference], bool]"

BAD, MISSING, NONE, GOOD = "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "OK"

_MAKES_SUBSCRIPTION = ("CreateSubscription", "UpdateSubscription", "ModifyPushConfig")
_READS = ("Take", "Drain", "Exhaust", "Stream", "Pull")


@dataclass(frozen=True, slots=True)
class Known:
    """`name` and `why` are a row of the page. `parts`: from then on the two are in different states, so a sequence ends
    there."""

    name: str
    why: str
    fits: Fits
    example: Sequence[Operation]
    parts: bool = False


def _codes(ours: str, theirs: str, *methods: str, here: str = "", there: str = "") -> Fits:
    """By both codes; by the methods, if there are any; and by what the two say: one of `here`, parted by bars, is in
    the text of ours, and `there` in theirs."""

    def fits(found: Difference) -> bool:
        if found.path != "code" or (found.ours, found.theirs) != (ours, theirs):
            return False
        said, answered = (answer.text for answer in found.answers)
        is_said = any(text in said for text in here.split("|")) and there in answered
        return is_said and (not methods or found.operation.do in methods)

    return fits


_ANY = object()


def _field(end: str, ours: Any = _ANY, theirs: Any = _ANY, *methods: str) -> Fits:
    def fits(found: Difference) -> bool:
        same = all(want is _ANY or want == value for want, value in ((ours, found.ours), (theirs, found.theirs)))
        return found.path.split(".", 1)[-1].endswith(end) and same and (not methods or found.operation.do in methods)

    return fits


def _either(*all_fits: Fits) -> Fits:
    return lambda found: any(fits(found) for fits in all_fits)


def _after(fits: Fits, had: Callable[[Difference, Operation], bool]) -> Fits:
    """And something came before."""
    return lambda found: fits(found) and any(had(found, operation) for operation in found.before)


def _config(found: Difference, operation: Operation) -> dict[str, Any]:
    """What the operation made of the subscription that the difference is about."""
    made = operation.request
    if operation.do == "UpdateSubscription":
        made = operation.request["subscription"]
    elif operation.do != "CreateSubscription":
        return {}
    return made if made.get("name") == found.operation.request.get("subscription") else {}


def _more_there(found: Difference) -> bool:
    """The emulator delivers what is not delivered here."""
    if found.operation.do not in _READS or not found.path.startswith("value"):
        return False
    lists = isinstance(found.ours, list | None) and isinstance(found.theirs, list | None)
    return lists and len(found.ours or ()) < len(found.theirs or ())


def _less_there(found: Difference) -> bool:
    swapped = replace(found, ours=found.theirs, theirs=found.ours)
    return _more_there(swapped)


def _acked_after_nack(found: Difference) -> bool:
    nacked: set[str] = set()
    for operation in found.before:
        request = operation.request
        if request.get("subscription") != found.operation.request.get("subscription"):
            continue
        if operation.do == "ModifyAckDeadline" and not request.get("ack_deadline_seconds"):
            nacked |= set(request.get("messages", ()))
        elif operation.do == "Acknowledge" and nacked & set(request.get("messages", ())):
            return _more_there(found)
    return False


def _retained(found: Difference, operation: Operation) -> bool:
    made = operation.request.get("topic", {}) if operation.do == "UpdateTopic" else operation.request
    return operation.do in ("CreateTopic", "UpdateTopic") and "message_retention_duration" in made


KNOWN: Sequence[Known] = (
    Known(
        "`state`, `expiration_policy`, `topic_message_retention_duration`",
        "Shown here as Cloud Pub/Sub does: `ACTIVE`, the default of 31 days, the topic's own. The emulator leaves them "
        "out.",
        _either(
            _field("state", "ACTIVE", None),
            _field("expiration_policy", {"ttl": "2678400s"}, None),
            _field("topic_message_retention_duration", _ANY, None),
        ),
        [e.topic(message_retention_duration="600s"), e.subscription()],
    ),
    Known(
        "DetachSubscription, UpdateSnapshot",
        "The emulator does not have them.",
        _codes(GOOD, NONE, "DetachSubscription", "UpdateSnapshot"),
        [*e.both(), e.call("DetachSubscription", subscription=e.SUBSCRIPTION)],
        parts=True,
    ),
    Known(
        "DetachSubscription, UpdateSnapshot of what is not there",
        "The same: the emulator does not look.",
        lambda found: (
            found.path == "code"
            and found.theirs == NONE
            and found.ours in (BAD, MISSING)
            and found.operation.do in ("DetachSubscription", "UpdateSnapshot")
        ),
        [e.call("DetachSubscription", subscription=e.SUBSCRIPTION)],
    ),
    Known(
        "IAM policies",
        "The emulator does not have them, and takes names of topics and subscriptions only.",
        lambda found: (
            found.path == "code"
            and found.theirs in (NONE, BAD, MISSING)
            and found.operation.do in ("GetIamPolicy", "SetIamPolicy", "TestIamPermissions")
        ),
        [e.topic(), e.call("GetIamPolicy", resource=e.TOPIC)],
    ),
    Known(
        "Schemas in Protocol Buffers",
        "The emulator knows Avro only.",
        lambda found: found.path == "code" and found.theirs == NONE and "Protocol buffer" in found.answers[1].text,
        [
            e.call(
                "CreateSchema",
                parent="{P}",
                schema_id="order",
                schema={
                    "type": "PROTOCOL_BUFFER",
                    "definition": 'syntax = "proto3"; message Order { int32 number = 1; }',
                },
            )
        ],
        parts=True,
    ),
    Known(
        "Filters",
        "The emulator keeps a filter, and delivers everything.",
        _after(_more_there, lambda found, operation: bool(_config(found, operation).get("filter"))),
        [*e.both(filter="attributes:color"), e.publish(), e.take()],
        parts=True,
    ),
    Known(
        "Filters that are wrong",
        "Refused here, as documented. The emulator takes any text.",
        _codes(BAD, GOOD, *_MAKES_SUBSCRIPTION, here="filter:"),
        [*e.both(filter="color is red")],
        parts=True,
    ),
    Known(
        "Seek to a time with ordering keys",
        "The emulator does not have it.",
        _codes(GOOD, NONE, "Seek"),
        [
            *e.both(enable_message_ordering=True),
            e.call("Seek", subscription=e.SUBSCRIPTION, time="2020-01-01T00:00:00Z"),
        ],
        parts=True,
    ),
    Known(
        "Update masks",
        "`labels`, `expiration_policy` and inner fields such as `retry_policy.minimum_backoff` can be changed here.",
        _either(
            _codes(GOOD, BAD, "UpdateTopic", "UpdateSubscription", there="is not a known"),
            _codes(GOOD, BAD, "UpdateSubscription", there="currently unsupported in the Pub/Sub Emulator"),
        ),
        [*e.both(), e.update("labels", labels={"team": "blue"})],
        parts=True,
    ),
    Known(
        "Labels of snapshots",
        "The emulator forgets them.",
        lambda found: (
            found.operation.do in ("CreateSnapshot", "GetSnapshot", "ListSnapshots")
            and ".labels" in found.path
            and found.theirs is None
        ),
        [*e.both(), e.call("CreateSnapshot", name=e.SNAPSHOT, subscription=e.SUBSCRIPTION, labels={"team": "blue"})],
    ),
    Known(
        "Snapshots after the topic was deleted",
        "`_deleted-topic_` is their topic, as it is the subscription's, which can still seek to them. The emulator "
        "names the old topic, and refuses the seek.",
        _either(
            _field("topic", "_deleted-topic_"),
            _codes(GOOD, "FAILED_PRECONDITION", "Seek", there="_deleted-topic_"),
        ),
        [
            *e.both(),
            e.call("DeleteTopic", topic=e.TOPIC),
            e.call("CreateSnapshot", name=e.SNAPSHOT, subscription=e.SUBSCRIPTION),
        ],
        parts=True,
    ),
    Known(
        "What a topic retains",
        "A new subscription begins with what is published after it, and seeks to what was before. With the emulator it "
        "begins with what the topic retains.",
        _after(_more_there, _retained),
        [e.topic(message_retention_duration="600s"), e.publish(), e.subscription(), e.take()],
        parts=True,
    ),
    Known(
        "A retention that a topic is given later",
        "Counts for all that is still there. With the emulator, for what is published after it.",
        _after(_less_there, lambda found, operation: operation.do == "UpdateTopic" and _retained(found, operation)),
        [
            *e.both(),
            e.publish(),
            e.call(
                "UpdateTopic",
                topic={"name": e.TOPIC, "message_retention_duration": "600s"},
                update_mask="messageRetentionDuration",
            ),
            e.call("Drain", subscription=e.SUBSCRIPTION),
            e.call("Seek", subscription=e.SUBSCRIPTION, time="2020-01-01T00:00:00Z"),
            e.take(),
        ],
        parts=True,
    ),
    Known(
        "Seek with ordering keys to a snapshot without",
        "A snapshot is a place in the log, whatever subscription it was taken of. The emulator refuses it.",
        _codes(GOOD, "FAILED_PRECONDITION", "Seek", there="ordering keys enabled"),
        [
            *e.both(),
            e.call("CreateSnapshot", name=e.SNAPSHOT, subscription=e.SUBSCRIPTION),
            e.call("CreateSubscription", name="{P}/subscriptions/ordered", topic=e.TOPIC, enable_message_ordering=True),
            e.call("Seek", subscription="{P}/subscriptions/ordered", snapshot=e.SNAPSHOT),
        ],
        parts=True,
    ),
    Known(
        "A seek to a snapshot that is older than the subscription",
        "Opens all that the snapshot keeps, whichever subscription it was taken of. The emulator gives a subscription "
        "only what was published since it was created.",
        _after(
            _less_there,
            lambda found, operation: (
                operation.do == "Seek"
                and "snapshot" in operation.request
                and operation.request["subscription"] == found.operation.request["subscription"]
            ),
        ),
        [
            e.topic(),
            e.call("CreateSubscription", name="{P}/subscriptions/first", topic=e.TOPIC),
            e.publish(),
            e.call("CreateSnapshot", name=e.SNAPSHOT, subscription="{P}/subscriptions/first"),
            e.subscription(),
            e.call("Seek", subscription=e.SUBSCRIPTION, snapshot=e.SNAPSHOT),
            e.take(),
        ],
        parts=True,
    ),
    Known(
        "A topic's retention taken away",
        "UpdateTopic without a value clears it. The emulator sets 31 days.",
        _field("message_retention_duration", None, "2678400s", "UpdateTopic"),
        [e.topic(), e.call("UpdateTopic", topic={"name": e.TOPIC}, update_mask="messageRetentionDuration")],
        parts=True,
    ),
    Known(
        "A subscription's retention above 7 days",
        "31 days are allowed, as documented now. The emulator allows 7.",
        _either(
            _codes(GOOD, BAD, "CreateSubscription", "UpdateSubscription", there="message_retention_duration out of"),
            _codes(MISSING, BAD, "CreateSubscription", "UpdateSubscription", there="message_retention_duration out of"),
        ),
        [*e.both(message_retention_duration="2678400s")],
        parts=True,
    ),
    Known(
        "An ack after the nack of the same delivery",
        "Counts, like every late ack. The emulator delivers the message again.",
        _acked_after_nack,
        [
            *e.both(),
            e.publish(),
            e.take(),
            e.nack(),
            e.call("Acknowledge", subscription=e.SUBSCRIPTION, messages=["m0"]),
            e.take(),
        ],
        parts=True,
    ),
    Known(
        "`delivery_attempt` without a dead-letter policy",
        "0, as documented. With a retry policy the emulator counts.",
        lambda found: found.path.endswith(".attempt") and found.ours == 0,
        [*e.both(retry_policy={"minimum_backoff": "0s", "maximum_backoff": "0s"}), e.publish(), e.take()],
    ),
    Known(
        "The first nack with a retry policy",
        "Waits for the minimum backoff, like all others. The emulator sends the message again at once.",
        _after(_more_there, lambda found, operation: "retry_policy" in _config(found, operation)),
        [
            *e.both(retry_policy={"minimum_backoff": "10s"}),
            e.publish(),
            e.call("Drain", subscription=e.SUBSCRIPTION, nack=["m0"]),
        ],
        parts=True,
    ),
    Known(
        "Attributes of dead letters",
        "Those that begin with `holdfast-` are [additions](#additions).",
        lambda found: ".attributes.holdfast-" in found.path and found.theirs is None,
        [
            e.topic(e.DEAD),
            e.topic(),
            e.subscription(dead_letter_policy={"dead_letter_topic": e.DEAD}),
            e.call("CreateSubscription", name="{P}/subscriptions/desk", topic=e.DEAD),
            e.publish(),
            e.call("Exhaust", subscription=e.SUBSCRIPTION),
            e.call("Take", subscription="{P}/subscriptions/desk"),
        ],
    ),
    Known(
        "Dead letters into the subscription's own topic",
        "They go round. The emulator fails with `UNKNOWN` from then on.",
        _after(
            _either(
                _codes(GOOD, "UNKNOWN", *_READS),
                _codes(GOOD, "INTERNAL", *_READS),
                _codes("FAILED_PRECONDITION", "UNKNOWN", *_READS),
            ),
            lambda found, operation: "dead_letter_policy" in _config(found, operation),
        ),
        [
            *e.both(dead_letter_policy={"dead_letter_topic": e.TOPIC}),
            e.publish(),
            e.call("Exhaust", subscription=e.SUBSCRIPTION),
        ],
        parts=True,
    ),
    Known(
        "Pull from a push subscription",
        "`FAILED_PRECONDITION` here, as Cloud Pub/Sub answers. The emulator refuses streams, but lets Pull take from "
        "what it pushes.",
        _codes("FAILED_PRECONDITION", GOOD, *_READS, here="is a push subscription"),
        [*e.both(push_config=e.PUSH), e.take()],
        parts=True,
    ),
    Known(
        "Values out of range",
        "Labels, `ack_deadline_seconds` below 10, `expiration_policy.ttl` below a day, attributes of push, backoff: "
        "refused here by the field's name, within the documented limits. The emulator takes them.",
        _either(
            _codes(BAD, GOOD, here="labels|ack_deadline_seconds:|expiration_policy.ttl|retry_policy|push_config"),
            _codes(NONE, GOOD, *_MAKES_SUBSCRIPTION, here="push_config.attributes: x-goog-version"),
        ),
        [*e.both(labels={"Upper": "case"})],
        parts=True,
    ),
    Known(
        "Ack ids that nobody gave, with ordering keys",
        "`INVALID_ARGUMENT` here on every subscription. The emulator passes over them where there are ordering keys.",
        _codes(BAD, GOOD, "Acknowledge", "ModifyAckDeadline", here="is not an ack id"),
        [
            *e.both(enable_message_ordering=True),
            e.call("Acknowledge", subscription=e.SUBSCRIPTION, ack_ids=["garbage"]),
        ],
    ),
    Known(
        "Messages out of range",
        "More than 100 attributes, long keys and values, ordering keys above 1,024 bytes and requests above 10 MB are "
        "refused here.",
        _codes(BAD, GOOD, "Publish", here="messages[|messages: the request has"),
        [e.topic(), e.publish(ordering_key="k" * 1025)],
        parts=True,
    ),
    Known(
        "Names",
        "A project has a name, and so has a subscription. The emulator takes `projects//topics/orders`.",
        _either(_codes(BAD, GOOD, here="must look like"), _codes(BAD, MISSING, here="must look like")),
        [e.topic("projects//topics/orders")],
        parts=True,
    ),
    Known(
        "Exactly-once delivery with push",
        "Refused here: it is documented for pull alone.",
        _codes(BAD, GOOD, *_MAKES_SUBSCRIPTION, here="enable_exactly_once_delivery: is for pull"),
        [*e.both(enable_exactly_once_delivery=True, push_config=e.PUSH)],
        parts=True,
    ),
    Known(
        "`max_delivery_attempts` out of range",
        "`INVALID_ARGUMENT` here, as for every other field. The emulator says OUT_OF_RANGE.",
        _codes(BAD, "OUT_OF_RANGE"),
        [
            e.topic(e.DEAD),
            e.topic(),
            e.subscription(dead_letter_policy={"dead_letter_topic": e.DEAD, "max_delivery_attempts": 4}),
        ],
    ),
    Known(
        "Two things wrong at once",
        "A field that is wrong by itself is told here before what is missing, or there already.",
        lambda found: (
            found.path == "code"
            and found.ours in (BAD, NONE)
            and found.theirs in (MISSING, "ALREADY_EXISTS")
            and found.operation.do.startswith(("Create", "Update", "Commit", "ModifyPush", "Validate"))
        ),
        [e.topic(), e.topic(labels={"Upper": "case"})],
    ),
    Known(
        "Requests that make the emulator fail",
        "It answers `UNKNOWN` to a project that is none. `INVALID_ARGUMENT` here.",
        _codes(BAD, "UNKNOWN"),
        [e.call("ListTopics", project="nothing")],
    ),
    Known(
        "A negative `page_size`",
        "Refused here, as Google's own rules for APIs ask.",
        _codes(BAD, GOOD, here="page_size"),
        [e.call("ListTopics", project="{P}", page_size=-1)],
    ),
    Known(
        "Subscriptions and snapshots of a topic that is not there",
        "`NOT_FOUND` here, an empty list from the emulator.",
        _codes(MISSING, GOOD, "ListTopicSubscriptions", "ListTopicSnapshots", "Walk"),
        [e.call("ListTopicSubscriptions", topic=e.TOPIC)],
    ),
    Known(
        "Schema settings without an encoding",
        "JSON is meant. The emulator refuses them.",
        _either(
            _codes(GOOD, BAD, "CreateTopic", "UpdateTopic", there="Invalid schema encoding"),
            _codes(MISSING, BAD, "CreateTopic", "UpdateTopic", there="Invalid schema encoding"),
            _codes("ALREADY_EXISTS", BAD, "CreateTopic", there="Invalid schema encoding"),
        ),
        [e.avro(), e.topic(schema_settings={"schema": e.SCHEMA})],
        parts=True,
    ),
    Known(
        "The only revision of a schema",
        "Deleting it is a `FAILED_PRECONDITION` here. The emulator says `INVALID_ARGUMENT`.",
        _codes("FAILED_PRECONDITION", BAD, "DeleteSchemaRevision"),
        [e.avro(), e.call("DeleteSchemaRevision", name=f"{e.SCHEMA}@{{r0}}")],
    ),
    Known(
        "What DeleteSchemaRevision gives",
        "The newest revision that is left. The emulator gives the one that was deleted.",
        lambda found: found.operation.do == "DeleteSchemaRevision" and found.path.startswith("value"),
        [
            e.avro(),
            e.call("CommitSchema", name=e.SCHEMA, schema={"name": e.SCHEMA, "type": "AVRO", "definition": e.AVRO}),
            e.call("DeleteSchemaRevision", name=f"{e.SCHEMA}@{{r0}}"),
        ],
    ),
    Known(
        "The order of revisions",
        "The newest first. The emulator gives the oldest first.",
        lambda found: found.operation.do == "ListSchemaRevisions" and "revision_id" in found.path,
        [
            e.avro(),
            e.call("CommitSchema", name=e.SCHEMA, schema={"name": e.SCHEMA, "type": "AVRO", "definition": e.AVRO}),
            e.call("ListSchemaRevisions", name=e.SCHEMA, view="FULL"),
        ],
    ),
    Known(
        "Lists of schemas",
        "Without a `view` they have no definitions, as documented. The emulator gives them.",
        _field("definition", None, _ANY, "ListSchemas", "ListSchemaRevisions"),
        [e.avro(), e.call("ListSchemas", parent="{P}")],
    ),
    Known(
        "Bytes behind an Avro message",
        "Refused here. The emulator does not look behind the last field.",
        _codes(BAD, GOOD, here="left after the last field"),
        [e.avro(), e.call("ValidateMessage", parent="{P}", name=e.SCHEMA, encoding="BINARY", message="AgI=")],
        parts=True,
    ),
)


def known_for(difference: Difference) -> Known | None:
    return next((known for known in KNOWN if known.fits(difference)), None)
