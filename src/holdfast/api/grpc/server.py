"""The gRPC server: puts the services' plain functions on a port. The only file that knows grpcio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

import grpc

from holdfast import errors
from holdfast.api.grpc import iam, publisher, schemas, subscriber
from holdfast.api.grpc.methods import LARGEST_REQUEST_BYTES, Method, StreamMethod
from holdfast.api.grpc.status import status_of
from holdfast.broker.service import Broker

_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # or two brokers would share one port, each with half of the requests
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),  # Google's clients ping idle streams
]

# Streams get this long to end by themselves when the broker stops.
GRACE_SECONDS = 1.0

_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    def __init__(self, broker: Broker) -> None:
        self._publisher = publisher.Publisher(broker)
        self._subscriber = subscriber.Subscriber(broker)
        # By service and method name. REST offers the same ones.
        self.services: Mapping[str, Mapping[str, Method | StreamMethod]] = {
            publisher.SERVICE: self._publisher.methods(),
            subscriber.SERVICE: self._subscriber.methods(),
            schemas.SERVICE: schemas.Schemas(broker.schemas).methods(),
            iam.SERVICE: iam.Policies(broker).methods(),
        }
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int | None, *, socket_path: str = "") -> int:
        """Listens on a TCP port unless it is None, and on a Unix socket if there is a path.

        Gives the TCP port, which matters when 0 asked for a free one.
        """
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers([_handlers(name, methods) for name, methods in self.services.items()])
        if socket_path:
            server.add_insecure_port(f"unix:{socket_path}")
        bound = 0 if port is None else _take_port(server, host, port)
        await server.start()
        self._server = server
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._subscriber.end_streams()
            await self._server.stop(GRACE_SECONDS)


def _take_port(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError as error:
        raise errors.PortTaken(
            f"cannot listen on {host}:{port}: the port is taken or the address is not ours. "
            "Stop the other process, or choose another port"
        ) from error


def _handlers(service: str, methods: Mapping[str, Method | StreamMethod]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        service, {name: _handler(f"{service}/{name}", method) for name, method in methods.items()}
    )


def _handler(name: str, method: Method | StreamMethod) -> grpc.RpcMethodHandler[Any, Any]:
    if isinstance(method, Method):
        make: Callable[..., grpc.RpcMethodHandler[Any, Any]] = grpc.unary_unary_rpc_method_handler
        behaviour: Callable[..., Any] = _unary(name, method)
    else:
        make, behaviour = grpc.stream_stream_rpc_method_handler, _streaming(name, method)
    parse = None if isinstance(method, Method) and method.raw else method.request.FromString
    return make(behaviour, request_deserializer=parse, response_serializer=_serialize)


def _unary(name: str, method: Method) -> Callable[..., Any]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method.handle(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and the server goes on
            await _abort(name, error, context)

    return call


def _streaming(name: str, method: StreamMethod) -> Callable[..., Any]:
    async def call(requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for response in method.handle(requests):
                yield response
        except Exception as error:  # noqa: BLE001
            await _abort(name, error, context)

    return call


async def _abort(name: str, error: Exception, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
    status = status_of(error, name)
    metadata = (("grpc-status-details-bin", status.details),) if status.details else ()
    await context.abort(_CODES[status.code], status.message, metadata)
    raise AssertionError("abort always raises")


def _serialize(response: Any) -> bytes:
    if isinstance(response, bytes):
        return response
    serialized: bytes = response.SerializeToString()
    return serialized
