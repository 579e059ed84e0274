"""Whether data would be taken by a topic with a schema: asked of the broker in this process, or over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import grpc
from google.pubsub_v1 import PublisherAsyncClient, SchemaServiceAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcAsyncIOTransport
from google.pubsub_v1.types import Encoding

from holdfast.broker.schemas.registry import DELETED_SCHEMA
from holdfast.broker.service import Broker
from holdfast.broker.wire import PubsubMessage
from holdfast.errors import BadInput
from holdfast.transports.calls import CALL_SECONDS, translated
from holdfast.transports.google import CHANNEL_OPTIONS

# Cloud Pub/Sub keeps 20 of a schema.
MOST_REVISIONS = 20

_SCHEMA_IS_GONE = "the topic's schema was deleted: it takes no message"


class LocalSchemas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def problem(self, topic: str, data: bytes) -> str | None:
        settings = self._broker.get_topic(topic).schema
        if settings is None:
            return None
        try:
            await self._broker.schemas.check_publish(settings, [PubsubMessage(data=data)])
        except BadInput as error:
            return error.why
        return ""


class GoogleSchemas:
    def __init__(self, publisher: PublisherAsyncClient, schemas: SchemaServiceAsyncClient) -> None:
        self._publisher = publisher
        self._schemas = schemas

    @classmethod
    def connect(cls, emulator_host: str) -> Self:
        """An empty host means Cloud Pub/Sub, with the machine's own credentials."""
        if not emulator_host:
            return cls(PublisherAsyncClient(), SchemaServiceAsyncClient())
        channel = grpc.aio.insecure_channel(emulator_host, options=CHANNEL_OPTIONS)
        return cls(
            PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel)),
            SchemaServiceAsyncClient(transport=SchemaServiceGrpcAsyncIOTransport(channel=channel)),
        )

    async def problem(self, topic: str, data: bytes) -> str | None:
        found = await translated(self._publisher.get_topic(topic=topic, retry=None, timeout=CALL_SECONDS))
        settings = found.schema_settings
        if not settings.schema:
            return None
        if settings.schema == DELETED_SCHEMA:
            return _SCHEMA_IS_GONE
        problems = []
        for name in await self._accepted(settings):
            problem = await self._problem_with(name, settings.encoding, data)
            if not problem:
                return ""
            problems.append(problem)
        return problems[0] if problems else _SCHEMA_IS_GONE

    async def _problem_with(self, schema: str, encoding: Encoding, data: bytes) -> str:
        project = schema.rpartition("/schemas/")[0]
        request = {"parent": project, "name": schema, "message": data, "encoding": encoding}
        try:
            await translated(self._schemas.validate_message(request=request, retry=None, timeout=CALL_SECONDS))
        except BadInput as error:
            return error.why
        return ""

    async def _accepted(self, settings: Any) -> Sequence[str]:
        """Names of the revisions that the topic takes, the newest first."""
        call = self._schemas.list_schema_revisions(name=settings.schema, retry=None, timeout=CALL_SECONDS)
        revisions = [found.revision_id async for found in await translated(call)][:MOST_REVISIONS]
        if settings.last_revision_id in revisions:
            revisions = revisions[revisions.index(settings.last_revision_id) :]
        if settings.first_revision_id in revisions:
            revisions = revisions[: revisions.index(settings.first_revision_id) + 1]
        return [f"{settings.schema}@{revision}" for revision in revisions]

    async def close(self) -> None:
        for client in (self._publisher, self._schemas):
            transport: Any = client.transport
            await transport.close()
