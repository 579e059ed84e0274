"""All that a run needs, started in order: the parts of Holdfast as processes of their own, a proxy for each hop, the
lab's endpoint, and PostgreSQL where there is one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import signal
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import Subscription

from holdfast.errors import StartupError
from holdfast.settings import CONFIG_VARIABLE, known_settings
from holdfast.torture import parts, subscriptions
from holdfast.torture.app import EVENTS, MENDED, TOTALS
from holdfast.torture.clients import Connection, connected
from holdfast.torture.endpoint import Endpoint
from holdfast.torture.history import History
from holdfast.torture.parts import Part
from holdfast.torture.postgres import Postgres
from holdfast.torture.proxy import Proxy

APP = "holdfast.torture.app:app"

HTTP_SECONDS = 5.0
PAGE_SIZE = 1000

# Below those that the system gives to outgoing connections: one of these could take the port of a part that is down.
PORTS = range(15_000, 30_000)
ACK_DEADLINE_SECONDS = 10

# Dead letters for spent attempts come from these two alone; the lab's own subscribers must keep every message.
ATTEMPTS = {subscriptions.PUSHED: 5, subscriptions.PULLED: 5}
MOST_ATTEMPTS = 100

# What would otherwise make a run wait for minutes after its last fault.
SETTINGS = {
    "HOLDFAST_PROJECT": subscriptions.PROJECT,
    "HOLDFAST_LOG_FORMAT": "json",
    "HOLDFAST_TOPOLOGY_CREATE": "never",
    "HOLDFAST_BROKER_BREAKER_SECONDS": "1",
    "HOLDFAST_BROKER_BREAKER_LONGEST_SECONDS": "4",
    "HOLDFAST_DESK_RETRY": json.dumps(
        [{"reason": reason, "delays": [1, 1, 2]} for reason in ("*", "DATABASE_CONNECTION_ERROR")]
    ),
}

_BACKLOG = re.compile(r'^holdfast_broker_backlog\{subscription="(?:[^"]*/)?([^"/]+)"\} (\S+)$', re.MULTILINE)


@dataclass
class World:
    folder: Path
    history: History
    seed: int
    http: aiohttp.ClientSession
    plant: Mapping[str, str] = field(default_factory=dict)  # by part
    with_disk: bool = True
    parts: dict[str, Part] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    postgres: Postgres | None = None
    lanes: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def __post_init__(self) -> None:
        self.mended = self.folder / "mended"
        self.config = self.folder / "holdfast.toml"
        self.endpoint = Endpoint(subscriptions.ENDPOINT, self.seed, self.history, self.mended.exists)

    # Starting.

    async def start(self, postgres: Path | None) -> None:
        # Or the parts would take the user's, from the current directory, and write to whatever stores it names.
        self.config.write_text("# The lab's own, in place of yours.\n")
        self.ports = dict(zip((*parts.PARTS, "postgres"), _free_ports(len(parts.PARTS) + 1), strict=True))
        if postgres is not None:
            self.postgres = Postgres(postgres, self.folder / "postgres.log", self.ports["postgres"])
            await self.postgres.make()
            await self.postgres.start()
        await self.endpoint.start()
        for hop, target in self._hops().items():
            self.proxies[hop] = Proxy(hop, target)
            await self.proxies[hop].start()
        self._make_parts()
        await self._start_part(parts.BROKER)
        async with connected(f"127.0.0.1:{self.ports[parts.BROKER]}", subscriptions.PROJECT) as connection:
            await _make_resources(connection, self._push_endpoints())
        await asyncio.gather(*(self._start_part(name) for name in parts.PARTS[1:]))

    def _hops(self) -> dict[str, int]:
        broker = self.ports[parts.BROKER]
        hops = dict.fromkeys((parts.CLIENTS_TO_BROKER, parts.CONSUMER_TO_BROKER, parts.DESK_TO_BROKER), broker)
        hops[parts.BROKER_TO_CONSUMER] = self.ports[parts.PUSHED_CONSUMER]
        hops[parts.BROKER_TO_ENDPOINT] = self.endpoint.port
        if self.postgres is not None:
            hops[parts.CONSUMER_TO_POSTGRES] = self.ports["postgres"]
        return hops

    def _push_endpoints(self) -> dict[str, str]:
        consumer, own = self.proxies[parts.BROKER_TO_CONSUMER], self.proxies[parts.BROKER_TO_ENDPOINT]
        return {
            subscriptions.PUSHED: f"http://{consumer.address}/pubsub/push",
            subscriptions.ENDPOINT: f"http://{own.address}/",
        }

    def _make_parts(self) -> None:
        to_consumers, to_desk = self.proxies[parts.CONSUMER_TO_BROKER], self.proxies[parts.DESK_TO_BROKER]
        store = []
        if self.postgres is not None:
            store = ["--store", self.postgres.url(self.proxies[parts.CONSUMER_TO_POSTGRES].port)]
        self._make_part(parts.BROKER, ["broker"], "")
        self._make_part(parts.PUSHED_CONSUMER, ["consume", APP, *store], to_consumers.address)
        self._make_part(parts.PULLING_CONSUMER, ["consume", APP, "--pull", subscriptions.PULLED], to_consumers.address)
        self._make_part(parts.DESK, ["desk"], to_desk.address)

    def _make_part(self, name: str, args: list[str], broker: str) -> None:
        folder = self.folder / name.replace(" ", "-")
        env = {**SETTINGS, MENDED: str(self.mended), CONFIG_VARIABLE: str(self.config)}
        env |= {"PUBSUB_EMULATOR_HOST": broker} if broker else {}
        where = ["--port", str(self.ports[name]), "--data", str(folder / "data")]
        self.parts[name] = Part(
            name,
            [*args, *where],
            folder,
            parts.environment(env, _is_setting),
            self.history,
            plant=self.plant.get(name, ""),
            with_disk=self.with_disk,
        )

    async def _start_part(self, name: str) -> None:
        await self.parts[name].start()
        if not await self.parts[name].wait_until_up():
            raise NotUp(f"{name} does not start; see {self.parts[name].log}")

    # Ending.

    async def heal(self) -> None:
        """Whatever the faults have left."""
        for proxy in self.proxies.values():
            proxy.heal()
        for name, part in self.parts.items():
            if not await part.wait_until_up():
                self.history.trouble("stuck", f"{name} does not start; see {part.log}")

    async def stop_parts(self) -> None:
        await asyncio.gather(*(self.parts[name].stop() for name in parts.PARTS[1:]))
        await self.parts[parts.BROKER].stop()

    async def abandon(self) -> None:
        for part in self.parts.values():
            await part.abandon()
        for proxy in self.proxies.values():
            await proxy.stop()
        await self.endpoint.stop()
        if self.postgres is not None:
            await self.postgres.end(signal.SIGKILL)

    # Asking.

    async def get(self, part: str, path: str) -> Any:
        async with self.http.get(f"http://127.0.0.1:{self.ports[part]}{path}") as answer:
            answer.raise_for_status()
            return await answer.json()

    async def post(self, part: str, path: str, body: Any) -> Any:
        async with self.http.post(f"http://127.0.0.1:{self.ports[part]}{path}", json=body) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def backlogs(self) -> dict[str, int]:
        """How many messages each subscription owes, by its short id."""
        async with self.http.get(f"http://127.0.0.1:{self.ports[parts.BROKER]}/metrics") as answer:
            answer.raise_for_status()
            return {name: round(float(count)) for name, count in _BACKLOG.findall(await answer.text())}

    async def documents(self, part: str, collection: str) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        token = ""
        while True:
            page = await self.get(part, f"/api/v1/documents/{collection}?pageSize={PAGE_SIZE}&pageToken={token}")
            found |= {document["id"]: document["fields"] for document in page["documents"]}
            token = page["nextPageToken"]
            if not token:
                return found

    async def failures(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        token = ""
        while True:
            page = await self.get(parts.DESK, f"/api/v1/failures?pageSize={PAGE_SIZE}&pageToken={token}")
            found += page["failures"]
            token = page["nextPageToken"]
            if not token:
                return found

    async def write_down_the_end(self) -> None:
        """What there is when all is quiet, for the checker. A part that is gone for good is a finding as well, and what
        it had is lost."""
        for part, write_down in (
            (parts.PUSHED_CONSUMER, self._write_down_documents(parts.PUSHED_CONSUMER, subscriptions.PUSHED)),
            (parts.PULLING_CONSUMER, self._write_down_documents(parts.PULLING_CONSUMER, subscriptions.PULLED)),
            (parts.BROKER, self._write_down_what_is_owed()),
            (parts.DESK, self._write_down_failures()),
        ):
            try:
                await write_down
            except (aiohttp.ClientError, TimeoutError) as error:
                self.history.trouble("stuck", f"{part} cannot be asked at the end: {error!r}")

    async def _write_down_documents(self, part: str, sub: str) -> None:
        for name, fields in (await self.documents(part, EVENTS)).items():
            self.history.add("document", consumer=sub, name=name, times=fields["times"])
        for key, fields in (await self.documents(part, TOTALS)).items():
            self.history.add("total", consumer=sub, key=key, events=fields["events"], sum=fields["sum"])

    async def _write_down_what_is_owed(self) -> None:
        for sub, count in (await self.backlogs()).items():
            self.history.add("owed", sub=sub, count=count)

    async def _write_down_failures(self) -> None:
        for failure in await self.failures():
            self.history.add("failure", **_told_of(failure))


class NotUp(StartupError):
    """A part could not even be started."""


@asynccontextmanager
async def a_world(
    folder: Path,
    history: History,
    seed: int,
    postgres: Path | None,
    plant: Mapping[str, str],
    *,
    with_disk: bool,
) -> AsyncIterator[World]:
    timeout = aiohttp.ClientTimeout(total=HTTP_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        world = World(folder, history, seed, http, plant, with_disk)
        try:
            await world.start(postgres)
            yield world
        finally:
            await world.abandon()


async def _make_resources(connection: Connection, push: Mapping[str, str]) -> None:
    topic = connection.topic(subscriptions.TOPIC)
    await connection.publisher.create_topic(name=topic, timeout=HTTP_SECONDS)
    for sub in subscriptions.ALL:
        dead_letters = connection.topic(subscriptions.dead_letters_of(sub))
        await connection.publisher.create_topic(name=dead_letters, timeout=HTTP_SECONDS)
        desk = connection.subscription(subscriptions.desk_of(sub))
        await connection.subscriber.create_subscription(name=desk, topic=dead_letters, timeout=HTTP_SECONDS)
        wanted = Subscription(
            name=connection.subscription(sub),
            topic=topic,
            ack_deadline_seconds=ACK_DEADLINE_SECONDS,
            enable_message_ordering=sub in subscriptions.ORDERED,
            enable_exactly_once_delivery=sub in subscriptions.EXACTLY_ONCE,
            dead_letter_policy={
                "dead_letter_topic": dead_letters,
                "max_delivery_attempts": ATTEMPTS.get(sub, MOST_ATTEMPTS),
            },
            retry_policy={
                "minimum_backoff": Duration(nanos=100_000_000),
                "maximum_backoff": Duration(seconds=2),
            },
            push_config={"push_endpoint": push.get(sub, "")},
        )
        await connection.subscriber.create_subscription(request=wanted, timeout=HTTP_SECONDS)


def _told_of(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": failure["id"],
        "status": failure["status"],
        "sub": failure["subscription"].rsplit("/", 1)[-1],
        "name": failure["attributes"].get("name", ""),
        "reason": failure["failureReason"],
    }


def _is_setting(name: str) -> bool:
    return name.startswith("HOLDFAST_") or name in {known.other_variable for known in known_settings()}


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found
