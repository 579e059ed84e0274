"""The broker on the network: every Pub/Sub service over gRPC and REST, on one port."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from starlette.routing import Route

from holdfast.api.grpc import iam, publisher, schemas, subscriber
from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.http.server import listen
from holdfast.api.http2.server import Http2Server
from holdfast.api.rest.app import rest_app
from holdfast.api.rest.server import ConnectionServer
from holdfast.broker.service import Broker
from holdfast.tracing.traces import Traces

# Calls under way get this long to end by themselves when the broker stops.
GRACE_SECONDS = 1.0


class PubsubServer:
    def __init__(
        self,
        broker: Broker,
        *,
        grace_seconds: float = GRACE_SECONDS,
        extra_routes: Sequence[Route] = (),
        traces: Traces | None = None,
    ) -> None:
        """`extra_routes` are served on the same port, besides Pub/Sub."""
        self._grace_seconds = grace_seconds
        self._subscriber = subscriber.Subscriber(broker)
        # By service and method name. gRPC and REST offer the same ones.
        services: Mapping[str, Mapping[str, Method | StreamMethod]] = {
            publisher.SERVICE: publisher.Publisher(broker, traces).methods(),
            subscriber.SERVICE: self._subscriber.methods(),
            schemas.SERVICE: schemas.Schemas(broker.schemas).methods(),
            iam.SERVICE: iam.Policies(broker).methods(),
        }
        self._grpc = Http2Server(services)
        self._rest = ConnectionServer(rest_app(services, extra_routes))

    async def start(self, host: str, port: int, grpc_port: int | None = None) -> int:
        """`grpc_port` is a second port for gRPC alone. Gives the first, which matters when 0 asked for a free one."""
        listener = listen(host, port)
        try:
            direct = listen(host, grpc_port) if grpc_port is not None else None
        except BaseException:
            listener.close()
            raise
        await self.serve(listener, direct)
        bound: int = listener.getsockname()[1]
        return bound

    async def serve(self, listener: socket.socket, direct: socket.socket | None = None) -> None:
        """On sockets that listen already; `direct` is for gRPC alone."""
        await self._rest.start()
        # What does not begin as HTTP/2 does is REST.
        await self._grpc.start(listener, self._rest.protocol)
        if direct is not None:
            await self._grpc.start(direct)

    async def stop(self) -> None:
        """Nobody new; streams end with UNAVAILABLE, which tells clients to come back."""
        self._grpc.stop_accepting()
        self._subscriber.end_streams()
        await self._rest.stop()
        await self._grpc.stop(self._grace_seconds)
