"""One Firestore database: each call has a time limit, is made once, and fails with our own errors.

It uses the generated client that google-cloud-firestore is made of, below its AsyncClient: there the calls of a
transaction take no time limit, and each is repeated for a minute or five before it fails.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import google.auth
import grpc
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport
from google.cloud.firestore_v1.types import firestore, query, write

from holdfast.errors import BadInput, Misconfigured, StorageUnavailable

EMULATOR_HOST = "FIRESTORE_EMULATOR_HOST"

# A call takes tens of milliseconds; after this long it is better made again, by whoever decides on that.
CALL_SECONDS = 10.0

# What a closing store gives the calls that are under way.
CLOSE_SECONDS = 2.0

# https://firebase.google.com/docs/firestore/quotas
MOST_WRITES = 500
LARGEST_COMMIT_BYTES = 10 * 1024 * 1024

# The emulator has gRPC's usual limit, and would not say more than that it is short of something.
LARGEST_EMULATOR_COMMIT_BYTES = 4 * 1024 * 1024 - 64 * 1024

# Answers come one document at a time, so gRPC's limit of 4 MiB for each can stay.
_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    # By itself gRPC would look for a server that was away only every two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

# The messages below the library's wrappers, see values.py.
RawWrite = write.Write.pb()
RawQuery = query.StructuredQuery.pb()


# A document that is there already, is gone, or is another version than was read. And Aborted: two commits got in each
# other's way.
_CONFLICTS = (exceptions.AlreadyExists, exceptions.NotFound, exceptions.FailedPrecondition, exceptions.Aborted)


class Conflict(Exception):
    """Another writer changed a document since it was read. Nothing was written."""


class FirestoreDatabase:
    def __init__(
        self,
        name: str,
        channel: grpc.aio.Channel,
        host: str,
        metadata: Sequence[tuple[str, str]] = (),
        largest_commit_bytes: int = LARGEST_COMMIT_BYTES,
    ) -> None:
        self.documents = f"{name}/documents"
        self._name = name
        self._channel = channel
        self._client = FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(host=host, channel=channel))
        self._limits: dict[str, Any] = {
            "retry": None,
            "timeout": CALL_SECONDS,
            "metadata": [*metadata, ("google-cloud-resource-prefix", name)],
        }
        self._largest_commit_bytes = largest_commit_bytes
        self._closed = False

    @classmethod
    async def connect(cls, project: str, database: str) -> Self:
        """Asks nothing of the server yet: Firestore may be away for a while when a consumer starts. Raises
        Misconfigured when there are no credentials."""
        for name in (project, database):
            if not name or "/" in name or not name.isprintable():
                raise Misconfigured(f"{name!r} cannot be the name of a Firestore project or database")
        name = f"projects/{project}/databases/{database}"
        if host := os.environ.get(EMULATOR_HOST):
            # An emulator takes every writer for the owner, and is not encrypted.
            channel = grpc.aio.insecure_channel(host, options=_CHANNEL_OPTIONS)
            return cls(name, channel, host, [("authorization", "Bearer owner")], LARGEST_EMULATOR_COMMIT_BYTES)
        host = FirestoreAsyncClient.DEFAULT_ENDPOINT
        return cls(name, await _cloud_channel(host), host)

    async def read(self, names: Sequence[str], only_fields: Sequence[str] = ()) -> dict[str, Any]:
        """The documents that are there, by name."""
        request = firestore.BatchGetDocumentsRequest.pb()(database=self._name, documents=names)
        if only_fields:
            request.mask.field_paths.extend(only_fields)
        with self._calling():
            answers = await self._client.batch_get_documents(
                firestore.BatchGetDocumentsRequest.wrap(request), **self._limits
            )
            found = [firestore.BatchGetDocumentsResponse.pb(answer).found async for answer in answers]
        return {document.name: document for document in found if document.name}

    async def commit(self, writes: Iterable[Any]) -> Sequence[Any]:
        """All of them or none; gives the update time of each. Raises Conflict when one expects what is not there."""
        request = firestore.CommitRequest.pb()(database=self._name, writes=writes)
        if len(request.writes) > MOST_WRITES:
            raise BadInput("writes", f"change {len(request.writes)} documents at once; {MOST_WRITES} is the most")
        if (size := request.ByteSize()) > self._largest_commit_bytes:
            raise BadInput("writes", f"have {size:,} bytes together; {self._largest_commit_bytes:,} is the most")
        with self._calling(), _telling_conflicts():
            answer = await self._client.commit(firestore.CommitRequest.wrap(request), **self._limits)
        return [result.update_time for result in firestore.CommitResponse.pb(answer).write_results]

    async def write_each(self, writes: Iterable[Any]) -> int:
        """Each for itself; gives how many were done."""
        request = firestore.BatchWriteRequest.pb()(database=self._name, writes=writes)
        with self._calling():
            answer = await self._client.batch_write(firestore.BatchWriteRequest.wrap(request), **self._limits)
        return sum(status.code == 0 for status in firestore.BatchWriteResponse.pb(answer).status)

    async def find(self, wanted: Any) -> list[Any]:
        """The documents that a query finds."""
        request = firestore.RunQueryRequest.pb()(parent=self.documents, structured_query=wanted)
        with self._calling():
            answers = await self._client.run_query(firestore.RunQueryRequest.wrap(request), **self._limits)
            found = [firestore.RunQueryResponse.pb(answer).document async for answer in answers]
        return [document for document in found if document.name]

    async def collection_ids(self) -> list[str]:
        request = firestore.ListCollectionIdsRequest(parent=self.documents)
        with self._calling():
            return [name async for name in await self._client.list_collection_ids(request, **self._limits)]

    async def close(self) -> None:
        self._closed = True
        await self._channel.close(CLOSE_SECONDS)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailable("the connection to Firestore is closed")

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """The library's errors become ours; whatever may pass by itself is StorageUnavailable."""
        self._check_open()
        try:
            yield
        except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.NotFound) as error:
            raise Misconfigured(f"Firestore refuses {self._name}: {error.message}") from error
        except exceptions.FailedPrecondition as error:  # such as a database in Datastore mode, or an absent index
            raise Misconfigured(f"Firestore cannot do it with {self._name}: {error.message}") from error
        except exceptions.InvalidArgument as error:
            raise BadInput("documents", f"Firestore refuses them: {error.message}") from error
        except exceptions.GoogleAPICallError as error:
            raise StorageUnavailable(f"Firestore could not do it: {error.message}") from error
        except (exceptions.GoogleAPIError, GoogleAuthError, grpc.RpcError, grpc.aio.UsageError, OSError) as error:
            raise StorageUnavailable(f"Firestore could not be reached: {error}") from error
        except asyncio.CancelledError:
            # A channel that closes cancels its calls. That is not our caller being cancelled.
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                self._check_open()
            raise


@contextmanager
def _telling_conflicts() -> Iterator[None]:
    try:
        yield
    except _CONFLICTS as error:
        raise Conflict from error


async def _cloud_channel(host: str) -> grpc.aio.Channel:
    try:
        # In a thread: it may ask the machine's metadata server.
        credentials, _ = await asyncio.to_thread(google.auth.default, scopes=FirestoreGrpcAsyncIOTransport.AUTH_SCOPES)
    except DefaultCredentialsError as error:
        raise Misconfigured(f"Firestore needs credentials, or {EMULATOR_HOST}: {error}") from error
    return FirestoreGrpcAsyncIOTransport.create_channel(host, credentials=credentials, options=_CHANNEL_OPTIONS)
