"""Where the operator commands connect to, and how a refusal or a dead endpoint becomes one line.

Google's clients are imported inside functions: they take half a second, which other commands should not pay.
"""

from __future__ import annotations

import functools
import queue
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import config_option, settings_from
from holdfast.errors import BadInput, HoldfastError, StorageUnavailable
from holdfast.settings import GeneralSettings, Settings

if TYPE_CHECKING:
    import grpc
    from google.pubsub_v1 import PublisherClient, SchemaServiceClient, SubscriberClient

# An endpoint that does not even take a connection in this time is reported as dead.
CONNECT_SECONDS = 5.0
CALL_SECONDS = 15.0

# For every unary call: the clients' own retries go on for minutes, and a person is waiting.
CALL: Mapping[str, Any] = {"retry": None, "timeout": CALL_SECONDS}

_HOST_PORT = re.compile(r"(?!\w+://).+:\d{1,5}", re.ASCII)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a proxy for the web is no way to a broker on this machine or next to it
]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Pub/Sub, and the project that short ids are in."""

    project: str
    address: str  # HOST:PORT; empty is Cloud Pub/Sub

    def __str__(self) -> str:
        return self.address or "Cloud Pub/Sub"

    @property
    def project_path(self) -> str:
        return f"projects/{self.project}"

    def path(self, kind: str, value: str) -> str:
        """`kind` is topics, subscriptions, schemas or snapshots; `value` a short id, or a full path of that kind."""
        if not value.startswith("projects/"):
            return f"projects/{self.project}/{kind}/{value}"
        if value.split("/")[2:3] != [kind]:
            raise BadInput(value, f"is not an id, nor a path that looks like projects/PROJECT/{kind}/ID")
        return value


def endpoint_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --project, --broker, --cloud and --config; the command gets what they mean as `endpoint`."""

    @config_option
    @click.option("--cloud", is_flag=True, help="Cloud Pub/Sub, with this machine's credentials.")
    @click.option(
        "--broker", metavar="HOST:PORT", help="Broker.  [default: PUBSUB_EMULATOR_HOST, or broker.host:broker.port]"
    )
    @click.option("--project", help="Project of short ids.  [default: local]")
    @functools.wraps(command)
    def with_endpoint(
        *args: Any, project: str | None, broker: str | None, cloud: bool, config: Path | None, **options: Any
    ) -> None:
        if cloud and broker is not None:
            raise click.UsageError("--cloud and --broker exclude each other.")
        _refuse_broken_text(click.get_current_context())
        settings = settings_from(config, project=project, emulator_host=broker)
        command(*args, endpoint=_cloud(settings) if cloud else _broker(settings), **options)

    return with_endpoint


def _broker(settings: Settings) -> Endpoint:
    address = settings.general.emulator_host or f"{settings.broker.host}:{settings.broker.port}"
    if not _HOST_PORT.fullmatch(address):
        raise BadInput("--broker", f"must look like HOST:PORT, such as 127.0.0.1:8085, not {address!r}")
    return Endpoint(settings.general.project, address)


def _cloud(settings: Settings) -> Endpoint:
    project = settings.general.project
    if project == GeneralSettings().project:  # too short to be a project of Google's: nobody chose it
        project = _project_of_credentials()
    return Endpoint(project, "")


def _project_of_credentials() -> str:
    import google.auth  # noqa: PLC0415

    with _one_line_errors("Cloud Pub/Sub"):
        project = google.auth.default()[1]
    if not project:
        raise BadInput("--project", "is needed: the credentials of this machine name no project")
    return str(project)


def _refuse_broken_text(context: click.Context) -> None:
    """Arguments that are not UTF-8 could not be sent. Payloads may be anything and are not among them."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        texts = value if isinstance(value, tuple) else (value,)
        if parameter.name != "data" and any(isinstance(text, str) and _is_broken(text) for text in texts):
            raise BadInput(parameter.opts[0], "is not valid UTF-8")


def _is_broken(text: str) -> bool:
    """Python keeps bytes that are not UTF-8 as halves of surrogate pairs."""
    return any("\ud800" <= char <= "\udfff" for char in text)


# Connections.


class Connection:
    """Google's synchronous clients of one endpoint; each is made when it is first used."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._channel = _insecure_channel(endpoint.address) if endpoint.address else None
        self._clients: list[Any] = []

    def wait_until_ready(self) -> None:
        """Ends at the first refusal, and otherwise after CONNECT_SECONDS. Cloud Pub/Sub is taken to be there."""
        if self._channel is not None and not _connects(self._channel):
            raise _nothing_answers(self.endpoint.address)

    def wait_for_return(self, seconds: float) -> None:
        """As wait_until_ready, for a broker that was there: it may be restarting, so refusals are not the end."""
        import grpc  # noqa: PLC0415

        if self._channel is None:
            return
        try:
            grpc.channel_ready_future(self._channel).result(timeout=seconds)
        except grpc.FutureTimeoutError as error:
            raise StorageUnavailable(f"{self.endpoint} went away and did not return") from error

    @cached_property
    def publisher(self) -> PublisherClient:
        from google.pubsub_v1 import PublisherClient  # noqa: PLC0415
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport  # noqa: PLC0415

        client: PublisherClient = self._client(PublisherClient, PublisherGrpcTransport)
        return client

    @cached_property
    def subscriber(self) -> SubscriberClient:
        from google.pubsub_v1 import SubscriberClient  # noqa: PLC0415
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport  # noqa: PLC0415

        client: SubscriberClient = self._client(SubscriberClient, SubscriberGrpcTransport)
        return client

    @cached_property
    def schemas(self) -> SchemaServiceClient:
        from google.pubsub_v1 import SchemaServiceClient  # noqa: PLC0415
        from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport  # noqa: PLC0415

        client: SchemaServiceClient = self._client(SchemaServiceClient, SchemaServiceGrpcTransport)
        return client

    def _client(self, client: Callable[..., Any], transport: Callable[..., Any]) -> Any:
        made = client(transport=transport(channel=self._channel)) if self._channel is not None else client()
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.transport.close()
        if self._channel is not None:
            self._channel.close()


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[Connection]:
    """What the endpoint refuses inside becomes a HoldfastError with the endpoint's own words."""
    with _one_line_errors(str(endpoint)):
        connection = Connection(endpoint)
        try:
            connection.wait_until_ready()
            yield connection
        finally:
            connection.close()


def _insecure_channel(address: str) -> grpc.Channel:
    import grpc  # noqa: PLC0415

    return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)


def _connects(channel: grpc.Channel) -> bool:
    import grpc  # noqa: PLC0415

    final = {
        grpc.ChannelConnectivity.READY: True,
        grpc.ChannelConnectivity.TRANSIENT_FAILURE: False,
        grpc.ChannelConnectivity.SHUTDOWN: False,
    }
    reached: queue.Queue[bool] = queue.Queue()

    def told(state: grpc.ChannelConnectivity) -> None:
        if state in final:
            reached.put(final[state])

    channel.subscribe(told, try_to_connect=True)
    try:
        return reached.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return False
    finally:
        channel.unsubscribe(told)


@contextmanager
def _one_line_errors(where: str) -> Iterator[None]:
    from google.api_core import exceptions  # noqa: PLC0415
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError  # noqa: PLC0415

    try:
        yield
    except exceptions.DeadlineExceeded as error:
        raise StorageUnavailable(f"{where} did not answer within {CALL_SECONDS:g} seconds") from error
    except exceptions.MethodNotImplemented as error:
        raise HoldfastError(f"{where} does not offer this: {error.message}") from error
    except exceptions.GoogleAPICallError as error:
        raise HoldfastError(error.message or f"{where} refused this without a reason") from error
    except DefaultCredentialsError as error:
        raise HoldfastError(
            "this machine has no Google Cloud credentials; `gcloud auth application-default login` makes them"
        ) from error
    except GoogleAuthError as error:
        raise HoldfastError(f"{where} did not accept this machine's credentials: {error}") from error


def _nothing_answers(address: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"no broker answers at {address}. Start one with `holdfast up` or `holdfast broker`, "
        "or name another with --broker HOST:PORT"
    )
