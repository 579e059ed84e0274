"""A consumer: its handlers, its pipeline, and where its failed messages go."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.routing import Route

from holdfast.api.http import documents as documents_api
from holdfast.api.http import outcomes as outcomes_api
from holdfast.api.http import push_endpoint
from holdfast.api.http.health import Check
from holdfast.clock import Clock
from holdfast.consumer.app import Consumer
from holdfast.consumer.dead_letter_topic import DeadLetterTopic
from holdfast.consumer.declared import add_declared_routes
from holdfast.consumer.documents import DocumentStore
from holdfast.consumer.failure_sink import FailureSink
from holdfast.consumer.housekeeping import keep_forgetting
from holdfast.consumer.journey import ConsumerJourney
from holdfast.consumer.materializer import materializer
from holdfast.consumer.metrics import consumer_metrics
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.push_auth import PushAuth
from holdfast.consumer.traced import TracedPipeline
from holdfast.consumer.transport import Transport
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.redaction import redaction_from
from holdfast.errors import SettingError
from holdfast.metrics.registry import MetricsRegistry
from holdfast.model.names import short_id, topic_path
from holdfast.settings import Settings
from holdfast.topology.default import topics_by_subscription
from holdfast.tracing.traces import Traces
from holdfast.transports.google import GoogleTransport
from holdfast.wiring.desk.work import make_intake, retry_policy
from holdfast.wiring.lifetimes import background, entered
from holdfast.wiring.push_tokens import remote_auth
from holdfast.wiring.stores import open_documents, open_failures_beside_desk

log = logging.getLogger("holdfast.consumer")


@dataclass(frozen=True, slots=True)
class ConsumerPart:
    """`transport` connects when first called."""

    pipeline: Pipeline
    auth: PushAuth | None
    routes: Sequence[Route]
    checks: Mapping[str, Check]
    transport: Callable[[], Transport]
    journey: ConsumerJourney


@asynccontextmanager
async def consuming(
    settings: Settings, app: Consumer, clock: Clock, metrics: MetricsRegistry, traces: Traces | None = None
) -> AsyncIterator[ConsumerPart]:
    """A consumer that can be pushed to by HTTP, once somebody serves its routes."""
    async with AsyncExitStack() as stack:
        auth = await remote_auth(stack, settings, clock)
        documents = await entered(stack, await open_documents(settings))
        transport = await entered(stack, _Connection(settings.general.emulator_host))
        sink = await _own_failure_sink(stack, settings, clock, transport, traces)
        pipeline = await entered(stack, make_pipeline(settings, clock, app, documents, sink, metrics, traces))
        await stack.enter_async_context(background(keep_forgetting(documents, clock)))
        routes = consumer_routes(pipeline, documents, auth, traces)
        checks = {"documents": documents.check, "failures": sink.check}
        journey = ConsumerJourney(app, documents, pipeline.recent)
        yield ConsumerPart(pipeline, auth, routes, checks, transport.get, journey)


def make_pipeline(
    settings: Settings,
    clock: Clock,
    app: Consumer,
    documents: DocumentStore,
    sink: FailureSink,
    metrics: MetricsRegistry,
    traces: Traces | None = None,
) -> Pipeline:
    redaction = redaction_from(settings.desk)
    hide = redaction.of_message if redaction else None
    make = partial(TracedPipeline, traces) if traces is not None else Pipeline
    pipeline = make(app, documents, sink, clock, settings.consumer, topics_by_subscription(settings), hide)
    metrics.register(lambda: consumer_metrics(pipeline))
    return pipeline


def consumer_routes(
    pipeline: Pipeline, documents: DocumentStore, auth: PushAuth | None, traces: Traces | None = None
) -> list[Route]:
    return [
        *push_endpoint.routes(pipeline, auth, traces),
        *documents_api.routes(documents),
        *outcomes_api.routes(pipeline.recent),
    ]


def make_consumer(settings: Settings, clock: Clock, own: Consumer | None = None) -> Consumer:
    """The user's `own`, or the materializer, with the routes of holdfast.toml."""
    return add_declared_routes(own or materializer(settings.consumer, clock), settings.consumer.routes)


def warn_of_unmapped(settings: Settings, app: Consumer, subscriptions: Sequence[str]) -> None:
    """With a single handler there is no doubt. With several, a message that does not name its topic is poison."""
    known = {**topics_by_subscription(settings), **settings.consumer.subscription_topic_map}
    for name in subscriptions if len(app.topics) > 1 else ():
        if name not in known and short_id(name) not in known:
            log.warning(
                "messages of this subscription must name their topic: it is not in consumer.subscription_topic_map",
                extra={"fields": {"subscription": name, "topics": ", ".join(app.topics)}},
            )


def load_app(name: str) -> Consumer:
    """MODULE:NAME, looked up from the current directory too, as other Python servers do."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise SettingError("MODULE:APP", name, "must look like my_package.my_module:app")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - where users expect their own modules to be found
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


def _dead_letter_topic(settings: Settings, transport: Transport) -> DeadLetterTopic:
    consumer = settings.consumer
    topic = topic_path(settings.general.project, consumer.dlq_topic)
    return DeadLetterTopic(transport, topic, consumer.dlq_publish_deadline_seconds)


def desk_failure_sink(settings: Settings, clock: Clock, transport: Transport, intake: Intake) -> FailureSink:
    """Of a consumer that shares its process with a desk."""

    async def opened() -> Intake:
        return intake

    if settings.consumer.dlq_topic:
        return _dead_letter_topic(settings, transport)
    return DirectCapture(opened, clock, settings.general.project)


async def _own_failure_sink(
    stack: AsyncExitStack, settings: Settings, clock: Clock, transport: _Connection, traces: Traces | None
) -> FailureSink:
    """Of a consumer that runs without a desk in its process."""
    if settings.consumer.dlq_topic:
        return _dead_letter_topic(settings, transport.get())
    policy = retry_policy(settings)
    stores = await stack.enter_async_context(AsyncExitStack())  # it closes after the pipeline, which comes later

    async def opened() -> Intake:
        store = await entered(stores, await open_failures_beside_desk(settings))
        return await make_intake(store, policy, clock, traces)

    return DirectCapture(opened, clock, settings.general.project)


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
