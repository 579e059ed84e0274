"""Puts the parts together. The only file that picks implementations.

Each part is an async context manager: entering starts it, leaving stops it and saves everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, assert_never
from urllib.parse import urlsplit

from starlette.routing import Route

from holdfast.api.http import documents as documents_api
from holdfast.api.http import failures as failures_api
from holdfast.api.http import metrics as metrics_api
from holdfast.api.http import openid, push_endpoint
from holdfast.api.http import outcomes as outcomes_api
from holdfast.api.http import push_status as push_status_api
from holdfast.api.http.app import Check, make_app
from holdfast.api.http.server import HttpServer, listen
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.log import MessageLog
from holdfast.broker.push.delivery import PushDelivery
from holdfast.broker.push.metrics import push_metrics
from holdfast.broker.push.tokens import PushTokens
from holdfast.broker.retention import keep_removing
from holdfast.broker.service import Broker
from holdfast.clock import Clock, SystemClock
from holdfast.consumer.app import Consumer
from holdfast.consumer.dead_letter_topic import DeadLetterTopic
from holdfast.consumer.declared import add_declared_routes
from holdfast.consumer.documents import DocumentStore
from holdfast.consumer.failure_sink import FailureSink
from holdfast.consumer.housekeeping import keep_forgetting
from holdfast.consumer.materializer import materializer
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.pull import pulling
from holdfast.consumer.push_auth import GOOGLE, GOOGLE_KEYS_URL, PushAuth, RemoteKeys
from holdfast.consumer.transport import Transport
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.collector import Collector
from holdfast.deadletter.failures import FailureStore
from holdfast.deadletter.service import Desk
from holdfast.errors import BadInput, SettingError
from holdfast.metrics import MetricsRegistry
from holdfast.model.names import subscription_path, topic_path
from holdfast.model.resources import OidcToken, PushConfig
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.outgoing.fetch import fetch
from holdfast.outgoing.targets import parse_target
from holdfast.settings import Settings
from holdfast.stores.locate import (
    FilePlace,
    FirestorePlace,
    MemoryPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    locate,
    locate_file,
)
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.memory.failures import MemoryFailureStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.database import check
from holdfast.stores.sqlite.documents import SCHEMA as documents_schema
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from holdfast.stores.sqlite.failures import SCHEMA as failures_schema
from holdfast.stores.sqlite.failures import SqliteFailureStore
from holdfast.stores.sqlite.log import SCHEMA as log_schema
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.topology.default import Topology, create_absent, default_topology, topics_by_subscription
from holdfast.transports.google import GoogleTransport
from holdfast.transports.local import LocalTransport

if TYPE_CHECKING:
    from holdfast.stores.firestore.documents import FirestoreDocumentStore
    from holdfast.stores.postgres.documents import PostgresDocumentStore

# A key set has a few keys of half a kilobyte.
MOST_KEYS_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Running:
    """Where the parts of this process listen. A port is 0 where that part does not run."""

    broker_port: int = 0
    http_port: int = 0


# The whole, and each part alone.


@asynccontextmanager
async def running_up(settings: Settings) -> AsyncIterator[Running]:
    """Broker, consumer and desk in one process."""
    clock = SystemClock()
    app = make_consumer(settings, clock)
    async with AsyncExitStack() as stack:
        listener, http_port = _take_port(stack, settings.http.host, settings.http.port)
        broker_ports = _take_broker_ports(stack, settings)
        await asyncio.to_thread(_check_files, settings)
        documents = await _entered(stack, await open_documents(settings))
        failures = await _entered(stack, await open_failures(settings))
        own_consumer = (_reachable(listener.getsockname()[0]), http_port, push_endpoint.PATH)
        guard = _guard(settings, settings.broker.host, [own_consumer])
        part = await stack.enter_async_context(_broker(settings, clock, guard, broker_ports))
        transport = LocalTransport(part.broker)
        endpoint = _push_endpoint(settings, http_port)
        token = None if settings.consumer_auth.push == "off" else _push_token(settings)
        topology = default_topology(settings, PushConfig(endpoint, oidc=token))
        if settings.topology.create != "never":
            await create_absent(topology, transport)
            await _point_push_here(part.broker, topology, settings.http.host)
        sink = _desk_failure_sink(settings, clock, transport, failures)
        pipeline = await _entered(stack, _pipeline(settings, clock, app, documents, sink))
        await stack.enter_async_context(_desk(clock, transport, failures, topology.desk_subscriptions))
        await stack.enter_async_context(_background(keep_forgetting(documents, clock)))
        auth = _local_auth(part, clock, token, endpoint) if token else None
        routes = [*_consumer_routes(pipeline, documents, auth), *failures_api.routes(Desk(failures)), *part.routes]
        checks = {"documents": documents.collections, "failures": failures.count_by_status}
        await stack.enter_async_context(_http(listener, routes, checks))
        # Last to start and first to stop: it calls the others.
        await stack.enter_async_context(_pushing(part.push))
        yield Running(part.port, http_port)


@asynccontextmanager
async def running_broker(settings: Settings) -> AsyncIterator[Running]:
    """The broker alone, with whatever topics and subscriptions clients create."""
    async with AsyncExitStack() as stack:
        ports = _take_broker_ports(stack, settings)
        guard = _guard(settings, settings.broker.host)
        part = await stack.enter_async_context(_broker(settings, SystemClock(), guard, ports))
        await stack.enter_async_context(_pushing(part.push))
        yield Running(broker_port=part.port)


@asynccontextmanager
async def running_consumer(settings: Settings, app: str, pull: Sequence[str]) -> AsyncIterator[Running]:
    """The consumer alone. `app` is MODULE:NAME, or empty for the materializer; `pull` names subscriptions to read."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        listener, port = _take_port(stack, settings.http.host, settings.http.port)
        consumer = make_consumer(settings, clock, load_app(app) if app else None)
        part = await stack.enter_async_context(consuming(settings, consumer, clock))
        await stack.enter_async_context(_http(listener, part.routes, part.checks))
        if not app and _may_create(settings):
            token = _push_token(settings) if part.auth else None
            push = PushConfig(_push_endpoint(settings, port), oidc=token)
            await create_absent(default_topology(settings, push), part.transport())
        if pull:  # first to stop: what it has begun needs all the others
            paths = [subscription_path(settings.general.project, name) for name in pull]
            await stack.enter_async_context(pulling(part.transport(), part.pipeline, clock, settings.consumer, paths))
        yield Running(http_port=port)


@dataclass(frozen=True, slots=True)
class ConsumerPart:
    """`transport` connects when first called."""

    pipeline: Pipeline
    auth: PushAuth | None
    routes: Sequence[Route]
    checks: Mapping[str, Check]
    transport: Callable[[], Transport]


@asynccontextmanager
async def consuming(settings: Settings, app: Consumer, clock: Clock) -> AsyncIterator[ConsumerPart]:
    """A consumer that can be pushed to by HTTP, once somebody serves its routes."""
    async with AsyncExitStack() as stack:
        auth = await _remote_auth(stack, settings, clock)
        documents = await _entered(stack, await open_documents(settings))
        transport = await _entered(stack, _Connection(settings.general.emulator_host))
        sink = await _own_failure_sink(stack, settings, clock, transport)
        pipeline = await _entered(stack, _pipeline(settings, clock, app, documents, sink))
        await stack.enter_async_context(_background(keep_forgetting(documents, clock)))
        routes = _consumer_routes(pipeline, documents, auth)
        yield ConsumerPart(pipeline, auth, routes, {"documents": documents.collections}, transport.get)


@asynccontextmanager
async def running_desk(settings: Settings) -> AsyncIterator[Running]:
    """The desk alone: reads the dead-letter topics of the default topology."""
    async with AsyncExitStack() as stack:
        listener, port = _take_port(stack, settings.http.host, settings.http.port)
        failures = await _entered(stack, await open_failures(settings))
        transport = await _entered(stack, GoogleTransport.connect(settings.general.emulator_host))
        topology = default_topology(settings, PushConfig(_push_endpoint(settings, port)))
        if _may_create(settings):
            await create_absent(topology.dead_letters_only(), transport)
        await stack.enter_async_context(_desk(SystemClock(), transport, failures, topology.desk_subscriptions))
        await stack.enter_async_context(
            _http(listener, failures_api.routes(Desk(failures)), {"failures": failures.count_by_status})
        )
        yield Running(http_port=port)


# Stores.


async def open_documents(settings: Settings) -> DocumentStore:
    place = documents_place(settings)
    match place:
        case MemoryPlace():
            return MemoryDocumentStore()
        case SqlitePlace(path):
            return await SqliteDocumentStore.open(path)
        case PostgresPlace(url):
            return await _postgres_documents().open(url)
        case FirestorePlace(project, database):
            return await _firestore_documents().open(project, database or settings.consumer.firestore_database)
        case _:
            assert_never(place)


async def open_failures(settings: Settings) -> FailureStore:
    place = failures_place(settings)
    match place:
        case MemoryPlace():
            return MemoryFailureStore()
        case SqlitePlace(path):
            return await SqliteFailureStore.open(path)
        case _:
            assert_never(place)


async def _open_failures_beside_desk(settings: Settings) -> FailureStore:
    place = failures_place(settings)
    match place:
        case MemoryPlace():
            return MemoryFailureStore()  # lost with the process, as everything of it
        case SqlitePlace(path):
            return await SqliteFailureStore.open_shared(path)
        case _:
            assert_never(place)


async def read_documents(settings: Settings) -> DocumentStore:
    """For looking only: works beside a running process, and changes nothing."""
    place = documents_place(settings)
    match place:
        case MemoryPlace():
            raise SettingError("consumer.store", "memory:", _ONLY_BY_URL)
        case SqlitePlace(path):
            return SqliteDocumentStore.read_only(path)
        case PostgresPlace(url):
            return await _postgres_documents().read_only(url)
        case FirestorePlace(project, database):
            return await _firestore_documents().open(project, database or settings.consumer.firestore_database)
        case _:
            assert_never(place)


def _postgres_documents() -> type[PostgresDocumentStore]:
    """Imported only when asked for: what it needs is an extra."""
    with _extra("postgres", "consumer.store"):
        from holdfast.stores.postgres.documents import PostgresDocumentStore  # noqa: PLC0415
    return PostgresDocumentStore


def _firestore_documents() -> type[FirestoreDocumentStore]:
    with _extra("firestore", "consumer.store"):
        from holdfast.stores.firestore.documents import FirestoreDocumentStore  # noqa: PLC0415
    return FirestoreDocumentStore


@contextlib.contextmanager
def _extra(name: str, key: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingError(key, f"{name} …", f"needs more packages: pip install 'holdfast[{name}]'") from error


def read_failures(settings: Settings) -> FailureStore:
    place = failures_place(settings)
    if isinstance(place, MemoryPlace):
        raise SettingError("desk.failures", "memory:", _ONLY_BY_URL)
    return SqliteFailureStore.read_only(place.path)


def documents_place(settings: Settings) -> Place:
    url = settings.consumer.store
    return locate("consumer.store", url) if url else _default_place(settings, "documents.db")


def failures_place(settings: Settings) -> FilePlace:
    url = settings.desk.failures
    return locate_file("desk.failures", url) if url else _default_place(settings, "failures.db")


def _default_place(settings: Settings, file_name: str) -> FilePlace:
    return MemoryPlace() if settings.general.memory else SqlitePlace(Path(settings.general.data, file_name))


_ONLY_BY_URL = "a store in memory can be read only through its process: use --url"


async def _open_log(settings: Settings) -> MessageLog:
    place = _default_place(settings, "broker.db")
    match place:
        case MemoryPlace():
            return MemoryMessageLog()
        case SqlitePlace(path):
            return await SqliteMessageLog.open(path)
        case _:
            assert_never(place)


def _check_files(settings: Settings) -> None:
    """All of them before any is opened: opening one may change it (an older format is brought up to date, what a
    killed process left is written back), and a start that is then refused must not have changed anything."""
    files = (
        (_default_place(settings, "broker.db"), log_schema),
        (documents_place(settings), documents_schema),
        (failures_place(settings), failures_schema),
    )
    for place, schema in files:
        if isinstance(place, SqlitePlace):
            check(place.path, schema)


# Pieces.


@dataclass(frozen=True, slots=True)
class _BrokerPart:
    broker: Broker
    push: PushDelivery
    port: int
    issuer: str
    routes: Sequence[Route]  # what else it shows of itself


@asynccontextmanager
async def _broker(
    settings: Settings, clock: Clock, guard: AddressGuard, ports: Sequence[socket.socket]
) -> AsyncIterator[_BrokerPart]:
    """`ports` listen already: one for everything, perhaps a second for gRPC alone. Push is not started yet."""
    async with AsyncExitStack() as stack:
        log = await _entered(stack, await _open_log(settings))
        # In memory the log is its own cache.
        broker_settings = replace(settings.broker, cache_megabytes=0) if settings.general.memory else settings.broker
        broker = await _entered(
            stack, await Broker.open(log, clock, broker_settings, guard, key_days=settings.push.key_days)
        )
        port: int = ports[0].getsockname()[1]
        issuer = settings.push.issuer or _url(settings.broker.host, port)
        client = await _entered(stack, OutgoingClient(guard, ca_file=settings.push.ca_file))
        tokens = PushTokens(broker.signing_keys, issuer, clock)
        push = PushDelivery(broker, client, tokens, issuer, settings.push, clock, strict=settings.broker.strict)
        registry = MetricsRegistry()
        registry.register(lambda: push_metrics(push.status(), clock.now_ns()))
        routes = [*push_status_api.routes(push.status, clock), *metrics_api.routes(registry)]
        own_routes = [*routes, *openid.routes(broker.signing_keys, lambda: issuer)]
        server = PubsubServer(broker, extra_routes=own_routes)
        await server.serve(*ports)
        stack.push_async_callback(server.stop)
        await stack.enter_async_context(_background(keep_removing(broker, clock)))
        yield _BrokerPart(broker, push, port, issuer, routes)


@asynccontextmanager
async def _pushing(push: PushDelivery) -> AsyncIterator[None]:
    push.start()
    try:
        yield
    finally:
        await push.stop()


@asynccontextmanager
async def _desk(
    clock: Clock, transport: Transport, failures: FailureStore, subscriptions: Sequence[str]
) -> AsyncIterator[None]:
    collector = Collector(transport, failures, clock, subscriptions)
    task = asyncio.create_task(collector.run())
    try:
        yield
    finally:
        collector.stop()
        await task


@asynccontextmanager
async def _http(listener: socket.socket, routes: Sequence[Route], checks: Mapping[str, Check]) -> AsyncIterator[None]:
    server = HttpServer(make_app(routes, checks), listener)
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class _Closable(Protocol):
    async def close(self) -> None: ...


ClosableT = TypeVar("ClosableT", bound=_Closable)


async def _entered(stack: AsyncExitStack, thing: ClosableT) -> ClosableT:
    """Closes it when the stack ends."""
    stack.push_async_callback(thing.close)
    return thing


def _pipeline(settings: Settings, clock: Clock, app: Consumer, documents: DocumentStore, sink: FailureSink) -> Pipeline:
    return Pipeline(app, documents, sink, clock, settings.consumer, topics_by_subscription(settings))


class _Connection:
    """To the broker that the settings name, made when it is first needed: a consumer that is only pushed to needs
    none."""

    def __init__(self, emulator_host: str) -> None:
        self._emulator_host = emulator_host
        self._transport: GoogleTransport | None = None

    def get(self) -> GoogleTransport:
        if self._transport is None:
            self._transport = GoogleTransport.connect(self._emulator_host)
        return self._transport

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()


# Where failed messages go that no subscription dead-letters.


def _dead_letter_topic(settings: Settings, transport: Transport) -> DeadLetterTopic:
    consumer = settings.consumer
    topic = topic_path(settings.general.project, consumer.dlq_topic)
    return DeadLetterTopic(transport, topic, consumer.dlq_publish_deadline_seconds)


def _desk_failure_sink(settings: Settings, clock: Clock, transport: Transport, failures: FailureStore) -> FailureSink:
    """Of a consumer that shares its process with a desk."""

    async def opened() -> FailureStore:
        return failures

    if settings.consumer.dlq_topic:
        return _dead_letter_topic(settings, transport)
    return DirectCapture(opened, clock, settings.general.project)


async def _own_failure_sink(
    stack: AsyncExitStack, settings: Settings, clock: Clock, transport: _Connection
) -> FailureSink:
    """Of a consumer that runs without a desk in its process."""
    if settings.consumer.dlq_topic:
        return _dead_letter_topic(settings, transport.get())
    capture = DirectCapture(lambda: _open_failures_beside_desk(settings), clock, settings.general.project)
    return await _entered(stack, capture)


def _consumer_routes(pipeline: Pipeline, documents: DocumentStore, auth: PushAuth | None) -> list[Route]:
    return [
        *push_endpoint.routes(pipeline, auth),
        *documents_api.routes(documents),
        *outcomes_api.routes(pipeline.recent),
    ]


def make_consumer(settings: Settings, clock: Clock, own: Consumer | None = None) -> Consumer:
    """The user's `own`, or the materializer, with the routes of holdfast.toml."""
    return add_declared_routes(own or materializer(settings.consumer, clock), settings.consumer.routes)


def load_app(name: str) -> Consumer:
    """MODULE:NAME, looked up from the current directory too, as other Python servers do."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingError("MODULE:APP", name, "must look like my_package.my_module:app")
    try:
        app = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # a module that the user's own code misses: its traceback says which
        raise SettingError("MODULE:APP", name, f"there is no module {error.name}") from error
    except AttributeError as error:
        raise SettingError("MODULE:APP", name, f"{module_name} has no {attribute}") from error
    if not isinstance(app, Consumer):
        raise SettingError("MODULE:APP", name, f"must be a holdfast.consumer.Consumer, not {type(app).__name__}")
    return app


# Addresses.


def _take_port(stack: AsyncExitStack, host: str, port: int) -> tuple[socket.socket, int]:
    """Before any file is opened: that the port is taken is known at once, and nothing has been changed then."""
    listener = listen(host, port)
    stack.callback(listener.close)
    return listener, listener.getsockname()[1]


def _take_broker_ports(stack: AsyncExitStack, settings: Settings) -> list[socket.socket]:
    wanted = [settings.broker.port] + ([settings.broker.grpc_port] if settings.broker.grpc_port else [])
    return [_take_port(stack, settings.broker.host, port)[0] for port in wanted]


def _reachable(host: str) -> str:
    """An address of this machine that leads to who listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is about listening everywhere


def _url(host: str, port: int) -> str:
    host = _reachable(host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _push_endpoint(settings: Settings, http_port: int) -> str:
    return f"{_url(settings.http.host, http_port)}{push_endpoint.PATH}"


def _guard(settings: Settings, host: str, also: Collection[tuple[str, int, str]] = ()) -> AddressGuard:
    """`host` is where this process listens: whoever can only be reached from this machine may push to it."""
    return AddressGuard.from_setting(settings.outgoing.allow, listens_on_loopback=_is_loopback(host), also=also)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Who may push.


def _push_token(settings: Settings) -> OidcToken:
    """What the default topology's subscriptions send to the consumer."""
    account = settings.consumer_auth.email or f"holdfast-push@{settings.general.project}.iam.gserviceaccount.com"
    return OidcToken(account, settings.consumer_auth.audience)


def _local_auth(part: _BrokerPart, clock: Clock, token: OidcToken, endpoint: str) -> PushAuth:
    keys = openid.LocalKeys(part.broker.signing_keys)
    return PushAuth(keys, clock, audience=token.audience or endpoint, issuer=part.issuer, email=token.service_account)


async def _remote_auth(stack: AsyncExitStack, settings: Settings, clock: Clock) -> PushAuth | None:
    wanted = settings.consumer_auth
    if wanted.push == "off" or (wanted.push == "auto" and not wanted.audience):
        return None
    if not wanted.audience:
        raise SettingError("consumer.auth.audience", "", "must be set where consumer.auth.push is required")
    url = wanted.keys_url or GOOGLE_KEYS_URL
    try:
        target = parse_target("consumer.auth.keys_url", url)
    except BadInput as error:
        raise SettingError("consumer.auth.keys_url", url, "must be an http:// or https:// URL") from error
    # Not somebody's address but the operator's own, so it may be on this machine wherever we listen.
    guard = AddressGuard.from_setting(settings.outgoing.allow, listens_on_loopback=True)
    client = await _entered(stack, OutgoingClient(guard, ca_file=settings.push.ca_file))
    keys = RemoteKeys(lambda: fetch(client, target, MOST_KEYS_BYTES), clock)
    return PushAuth(keys, clock, audience=wanted.audience, issuer=wanted.issuer or GOOGLE, email=wanted.email)


def _may_create(settings: Settings) -> bool:
    """Nobody's cloud project gets resources without having been asked."""
    create = settings.topology.create
    return create == "always" or (create == "auto" and bool(settings.general.emulator_host))


async def _point_push_here(broker: Broker, topology: Topology, host: str) -> None:
    """The consumer of this process may listen elsewhere than last time; its own subscriptions follow it. One that its
    owner has turned to pull, or pointed at somebody else, is left alone."""
    for wanted in topology.subscriptions:
        stored = broker.get_subscription(wanted.name).push
        if wanted.push is None or stored is None or not _is_own(stored.endpoint, host):
            continue
        push = replace(stored, endpoint=wanted.push.endpoint, oidc=wanted.push.oidc)
        if push != stored:
            await broker.modify_push_config(wanted.name, push)


def _is_own(endpoint: str, host: str) -> bool:
    """As an `up` that listens on `host`, or on loopback, writes it."""
    parts = urlsplit(endpoint)
    return parts.path == push_endpoint.PATH and (_is_loopback(parts.hostname or "") or parts.hostname == host)
