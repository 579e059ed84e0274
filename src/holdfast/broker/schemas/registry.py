"""The schemas of the broker: every operation of Pub/Sub's SchemaService once, and the check of a publish.

Names are full paths (projects/P/schemas/ID). A schema is one record of the log, all its revisions inside.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from holdfast.broker.log import Change, DeleteRecord, PutRecord
from holdfast.broker.schemas.compatibility import incompatibility
from holdfast.broker.schemas.definitions import AVRO, PROTOCOL_BUFFER, Compiled, Definition, check_definition, load
from holdfast.broker.schemas.encoding import BINARY, JSON, check_decoded, check_message, decoded
from holdfast.broker.schemas.problems import BadDefinition, DoesNotFit
from holdfast.clock import Clock
from holdfast.errors import AlreadyExists, BadInput, CorruptData, FailedPrecondition, NotFound
from holdfast.model.names import check_project, check_schema
from holdfast.model.resources import SchemaSettings

KIND = "schema"  # of the log's records

# What a topic shows, and what SchemaSettings name, once its schema is deleted.
DELETED_SCHEMA = "_deleted-schema_"

MOST_REVISIONS = 20  # Cloud Pub/Sub's, of a schema at one time
MOST_SCHEMAS = 10_000  # Cloud Pub/Sub's, of a project

# Compiled definitions are kept up to so many characters of definition; what is made of one is a few times larger.
CACHE_CHARACTERS = 8_000_000

# Positions of deleted revisions are remembered, because topics may name them; so many, and the oldest are forgotten.
MOST_GONE = 1000

# A thread is worth it above so many bytes of messages: at worst they take a tenth of a second for each revision.
LARGE_BYTES = 100_000

# So many definitions are compiled at once: each may be a child process.
_COMPILING = 2

Result = TypeVar("Result")

Commit: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]
CommitDeletion: TypeAlias = Callable[[str, Sequence[Change]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Revision:
    id: str
    number: int  # 1, 2, 3 … in the order of creation; never used again
    created_ns: int
    definition: Definition


@dataclass(frozen=True, slots=True)
class Schema:
    name: str
    type: str
    revisions: Sequence[Revision]  # oldest first, never empty
    next_number: int
    gone: Mapping[str, int] = field(default_factory=dict)  # number by id of deleted revisions

    @property
    def newest(self) -> Revision:
        return self.revisions[-1]

    def revision(self, revision_id: str) -> Revision | None:
        return next((revision for revision in self.revisions if revision.id == revision_id), None)

    def number_of(self, revision_id: str) -> int | None:
        """Also of a revision that was deleted."""
        found = self.revision(revision_id)
        return found.number if found else self.gone.get(revision_id)


class SchemaRegistry:
    def __init__(
        self,
        records: Mapping[tuple[str, str], bytes],
        commit: Commit,
        clock: Clock,
        commit_deletion: CommitDeletion | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
    ) -> None:
        """`records` are those of the log; other kinds are passed over. `commit` is MessageLog.commit.

        `commit_deletion(name, changes)` commits the deletion of a schema, and in the same commit whatever else must
        change with it: the topics that had the schema show `_deleted-schema_` from then on.
        """
        self._schemas = {name: _decoded(name, value) for (kind, name), value in records.items() if kind == KIND}
        self._commit = commit
        self._commit_deletion: CommitDeletion = commit_deletion or (lambda _, changes: commit(changes))
        self._clock = clock
        self._new_id = new_id
        self._cache = _Cache()
        # Changes wait for the disk in between; one at a time keeps each from undoing another.
        self._changing = asyncio.Lock()
        self._compiling = asyncio.Semaphore(_COMPILING)
        self._checking = asyncio.Lock()

    # Schemas and revisions. What is given has the wanted revision as its newest.

    async def create(self, name: str, kind: str, text: str) -> Schema:
        check_schema("schema_id", name)
        definition = await self._checked(kind, text)
        async with self._changing:
            if name in self._schemas:
                raise AlreadyExists(f"schema {name} already exists")
            project = name.rsplit("/", 1)[0] + "/"
            if sum(other.startswith(project) for other in self._schemas) >= MOST_SCHEMAS:
                raise FailedPrecondition(f"a project has at most {MOST_SCHEMAS} schemas")
            return await self._store(self._with_revision(Schema(name, kind, (), 1), definition))

    def get(self, name: str) -> Schema:
        """`name` may end with @ and a revision's id."""
        path, _, revision_id = name.partition("@")
        schema = self._schema(path)
        if not revision_id:
            return schema
        return replace(schema, revisions=(self._revision(schema, revision_id),))

    def list_schemas(self, project: str) -> list[Schema]:
        check_project("parent", project)
        return [self._schemas[name] for name in sorted(self._schemas) if name.startswith(f"{project}/")]

    def list_revisions(self, name: str) -> list[Schema]:
        """Newest first."""
        schema = self._schema(name)
        return [replace(schema, revisions=(revision,)) for revision in reversed(schema.revisions)]

    async def commit(self, name: str, kind: str, text: str) -> Schema:
        self._schema(name)
        definition = await self._checked(kind, text)
        async with self._changing:
            schema = self._schema(name)
            if kind != schema.type:
                raise BadInput("schema.type", f"is {kind}, and the schema's earlier revisions are {schema.type}")
            _require_room(schema)
            await asyncio.to_thread(_require_compatible, schema, definition)
            return await self._store(self._with_revision(schema, definition))

    async def rollback(self, name: str, revision_id: str) -> Schema:
        """A new revision with the definition of an old one."""
        async with self._changing:
            schema = self._schema(name)
            old = self._revision(schema, revision_id)
            _require_room(schema)
            return await self._store(self._with_revision(schema, old.definition))

    async def delete_revision(self, name: str, revision_id: str) -> Schema:
        """Gives the schema that is left."""
        async with self._changing:
            schema = self._schema(name)
            deleted = self._revision(schema, revision_id)
            if len(schema.revisions) == 1:
                raise FailedPrecondition(f"{revision_id} is the only revision of {name}: delete the schema instead")
            gone = dict([*schema.gone.items(), (deleted.id, deleted.number)][-MOST_GONE:])
            left = tuple(revision for revision in schema.revisions if revision is not deleted)
            return await self._store(replace(schema, revisions=left, gone=gone))

    async def delete(self, name: str) -> None:
        async with self._changing:
            self._schema(name)
            await self._commit_deletion(name, [DeleteRecord(KIND, name)])
            del self._schemas[name]

    # Validation without a topic.

    async def validate_schema(self, kind: str, text: str) -> None:
        await self._checked(kind, text)

    async def validate_message(self, name: str, encoding: str, message: bytes) -> None:
        """`name` may end with @ and a revision's id; the newest is taken without."""
        _require_encoding("encoding", encoding)
        await self._check_one(self.get(name).newest.definition, encoding, message)

    async def validate_message_with(self, kind: str, text: str, encoding: str, message: bytes) -> None:
        _require_encoding("encoding", encoding)
        await self._check_one(await self._checked(kind, text), encoding, message)

    async def _check_one(self, definition: Definition, encoding: str, message: bytes) -> None:
        compiled = self._cache.compiled(definition)
        try:
            await self._aside(len(message), lambda: check_message(compiled, encoding, message))
        except DoesNotFit as problem:
            raise BadInput("message", f"does not fit the schema: {problem}") from problem

    # Topics.

    def check_settings(self, settings: SchemaSettings) -> None:
        """Of a topic that is being created or changed."""
        check_schema("schema_settings.schema", settings.schema)
        _require_encoding("schema_settings.encoding", settings.encoding)
        schema = self._schema(settings.schema)
        for revision_id in (settings.first_revision, settings.last_revision):
            if revision_id:
                self._revision(schema, revision_id)
        if not _accepted(schema, settings):
            raise BadInput("schema_settings.first_revision_id", "is newer than last_revision_id")

    async def check_publish(self, settings: SchemaSettings, messages: Sequence[Any]) -> list[str]:
        """As check_messages, without holding up everybody else where the messages are large. Small ones are checked
        before the first await, so such publishes keep their order."""
        check = self._checker(settings, messages)
        return await self._aside(sum(len(message.data) for message in messages), check)

    def check_messages(self, settings: SchemaSettings, messages: Sequence[Any]) -> list[str]:
        """`messages` are google.pubsub.v1.PubsubMessage. Gives the id of the revision that each of them fits: of those
        that the topic accepts, the newest. Raises BadInput for the first that fits none."""
        return self._checker(settings, messages)()

    def _checker(self, settings: SchemaSettings, messages: Sequence[Any]) -> Callable[[], list[str]]:
        """Compiles here, so that a thread that runs the rest shares nothing with this one."""
        schema = self._schemas.get(settings.schema)
        if schema is None:
            raise BadInput("topic", "its schema was deleted; give the topic another schema, or none")
        accepted = [(found.id, self._cache.compiled(found.definition)) for found in _accepted(schema, settings)]
        if not accepted:
            raise BadInput("topic", f"none of the revisions that it accepts of schema {schema.name} is left")
        return lambda: [
            _fitting(schema.name, accepted, settings.encoding, f"messages[{index}].data", message.data)
            for index, message in enumerate(messages)
        ]

    # Inside.

    async def _aside(self, size: int, work: Callable[[], Result]) -> Result:
        """On a thread where there is much to look at; one such at a time, so that the rest gets its share."""
        if size <= LARGE_BYTES:
            return work()
        async with self._checking:
            return await asyncio.to_thread(work)

    async def _checked(self, kind: str, text: str) -> Definition:
        if kind not in (AVRO, PROTOCOL_BUFFER):
            raise BadInput("schema.type", f"must be {AVRO} or {PROTOCOL_BUFFER}")
        try:
            async with self._compiling:
                return await asyncio.to_thread(check_definition, kind, text)
        except BadDefinition as problem:
            raise BadInput("schema.definition", str(problem)) from problem

    def _with_revision(self, schema: Schema, definition: Definition) -> Schema:
        revision_id = self._new_id()
        while schema.number_of(revision_id) is not None:
            revision_id = self._new_id()
        revision = Revision(revision_id, schema.next_number, self._clock.now_ns(), definition)
        return replace(schema, revisions=(*schema.revisions, revision), next_number=schema.next_number + 1)

    async def _store(self, schema: Schema) -> Schema:
        await self._commit([PutRecord(KIND, schema.name, _encoded(schema))])
        self._schemas[schema.name] = schema
        return schema

    def _schema(self, name: str) -> Schema:
        check_schema("name", name)
        try:
            return self._schemas[name]
        except KeyError:
            raise NotFound(f"schema {name} does not exist") from None

    def _revision(self, schema: Schema, revision_id: str) -> Revision:
        found = schema.revision(revision_id)
        if found is None:
            raise NotFound(f"schema {schema.name} has no revision {revision_id[:64]!r}")
        return found


def schema_attributes(settings: SchemaSettings, revision_id: str) -> dict[str, str]:
    """What Cloud Pub/Sub adds to a message of a topic with a schema."""
    return {
        "googclient_schemaencoding": settings.encoding,
        "googclient_schemaname": settings.schema,
        "googclient_schemarevisionid": revision_id,
    }


class _Cache:
    """Compiled definitions, the last used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Definition, Compiled] = OrderedDict()
        self._characters = 0

    def compiled(self, definition: Definition) -> Compiled:
        found = self._kept.get(definition)
        if found is not None:
            self._kept.move_to_end(definition)
            return found
        found = self._kept[definition] = load(definition)
        self._characters += len(definition.text)
        while self._characters > CACHE_CHARACTERS and len(self._kept) > 1:
            dropped, _ = self._kept.popitem(last=False)
            self._characters -= len(dropped.text)
        return found


def _accepted(schema: Schema, settings: SchemaSettings) -> list[Revision]:
    """Newest first. A bound that was deleted still bounds, at the place where it was."""
    first = _bound(schema, settings.first_revision, 0)
    last = _bound(schema, settings.last_revision, schema.next_number)
    return [revision for revision in reversed(schema.revisions) if first <= revision.number <= last]


def _fitting(name: str, accepted: Sequence[tuple[str, Compiled]], encoding: str, where: str, data: bytes) -> str:
    newest_problem = ""
    try:
        value = decoded(encoding, data)
    except DoesNotFit as problem:
        raise BadInput(where, f"does not fit schema {name}: {problem}") from problem
    for revision_id, compiled in accepted:
        try:
            check_decoded(compiled, encoding, value)
        except DoesNotFit as problem:
            newest_problem = newest_problem or str(problem)
        else:
            return revision_id
    more = f", nor the {len(accepted) - 1} older ones" if len(accepted) > 1 else ""
    raise BadInput(where, f"does not fit schema {name}, revision {accepted[0][0]}{more}: {newest_problem}")


def _bound(schema: Schema, revision_id: str, default: int) -> int:
    number = schema.number_of(revision_id) if revision_id else None
    return default if number is None else number


def _require_room(schema: Schema) -> None:
    if len(schema.revisions) >= MOST_REVISIONS:
        raise FailedPrecondition(
            f"schema {schema.name} has {MOST_REVISIONS} revisions, which is the most; delete one first"
        )


def _require_compatible(schema: Schema, definition: Definition) -> None:
    new = load(definition)
    for revision in reversed(schema.revisions):
        if problem := incompatibility(new, load(revision.definition)):
            raise BadInput("schema.definition", f"is incompatible with revision {revision.id}: {problem}")


def _require_encoding(where: str, encoding: str) -> None:
    if encoding not in (JSON, BINARY):
        raise BadInput(where, f"must be {JSON} or {BINARY}")


def _encoded(schema: Schema) -> bytes:
    revisions = [
        {
            "id": revision.id,
            "number": revision.number,
            "created_ns": revision.created_ns,
            "definition": revision.definition.text,
            "descriptor": base64.b64encode(revision.definition.descriptor).decode(),
        }
        for revision in schema.revisions
    ]
    value = {
        "type": schema.type,
        "revisions": revisions,
        "next_number": schema.next_number,
        "gone": dict(schema.gone),
    }
    return json.dumps(value).encode()


def _decoded(name: str, stored: bytes) -> Schema:
    try:
        value = json.loads(stored)
        kind = value["type"]
        revisions = [
            Revision(
                item["id"],
                item["number"],
                item["created_ns"],
                Definition(kind, item["definition"], base64.b64decode(item["descriptor"])),
            )
            for item in value["revisions"]
        ]
        return Schema(name, kind, tuple(revisions), value["next_number"], value["gone"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"the stored schema {name} cannot be read: restore the data from a backup") from error
