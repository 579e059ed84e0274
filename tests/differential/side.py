"""One of the two brokers, and the official clients to talk to it: over gRPC, and over REST where it is asked for."""

from __future__ import annotations

import base64
import queue
import re
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.iam.v1 import iam_policy_pb2
from google.protobuf import json_format
from google.pubsub_v1 import PublisherClient, SchemaServiceClient, SubscriberClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport, PublisherRestTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport, SchemaServiceRestTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport, SubscriberRestTransport

from tests.differential.normal import kind_of, normalised, plain
from tests.differential.operations import Operation

SECONDS = 10.0  # longest wait for one answer

# How long a stream may keep the end of the call waiting. The emulator looks every 50 milliseconds.
STREAM_LOOK_SECONDS = 0.02

OK = "OK"

_NEVER = "2020-01-01T00:00:00Z"

# Requests whose names say another class than their methods.
_REQUESTS = {"CreateTopic": types.Topic, "CreateSubscription": types.Subscription}
_IAM = {"SetIamPolicy", "GetIamPolicy", "TestIamPermissions"}


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call led to: a code's name, the kind of thing that an error is about, and the normalised answer."""

    code: str
    about: str = ""
    value: Any = None
    text: str = field(default="", compare=False)  # what the error says, for people

    def compared(self) -> dict[str, Any]:
        return {"code": self.code, "about": self.about, "value": self.value}


@dataclass(slots=True)
class Received:
    symbol: str
    seen: dict[str, Any]  # what is compared
    ack_id: str


class Side:
    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(
            address, [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        )
        self._grpc: list[Any] = [
            PublisherClient(transport=PublisherGrpcTransport(channel=self._channel)),
            SubscriberClient(transport=SubscriberGrpcTransport(channel=self._channel)),
            SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=self._channel)),
        ]
        rest: dict[str, Any] = {"host": address, "url_scheme": "http", "credentials": AnonymousCredentials()}  # type: ignore[no-untyped-call]
        self._rest: list[Any] = [
            PublisherClient(transport=PublisherRestTransport(**rest)),
            SubscriberClient(transport=SubscriberRestTransport(**rest)),
            SchemaServiceClient(transport=SchemaServiceRestTransport(**rest)),
        ]
        self.begin("none")

    def close(self) -> None:
        for client in self._rest:
            client.transport.close()
        self._channel.close()

    def begin(self, project: str) -> None:
        """Forgets the sequence before."""
        self._project = project
        self._revisions: dict[str, str] = {}  # symbol by id
        self._marks: dict[str, str] = {}
        self._ids: dict[str, str] = {}  # message id by symbol
        self._deliveries: defaultdict[tuple[str, str], list[str]] = defaultdict(list)  # ack ids

    # The API as it is.

    def call(self, operation: Operation) -> Observation:
        """Any unary method."""
        return self._observed(lambda: self._answer(operation, self._filled(operation.request)))

    def _answer(self, operation: Operation, request: dict[str, Any]) -> Any:
        answer = self.send(operation.do, request, rest=operation.rest)
        if answer is None:
            return {}
        answer = next(iter(answer.pages)) if hasattr(answer, "pages") else answer
        value = plain(type(answer).pb(answer) if hasattr(type(answer), "pb") else answer)
        return self.seen(value)

    def send(self, method: str, request: dict[str, Any], *, rest: bool = False) -> Any:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
        client = next(client for client in (self._rest if rest else self._grpc) if hasattr(client, name))
        if method in _IAM:
            parsed = json_format.ParseDict(request, getattr(iam_policy_pb2, f"{method}Request")())
        else:
            kind: Any = _REQUESTS.get(method) or getattr(types, f"{method}Request")
            parsed = kind.wrap(json_format.ParseDict(request, kind.pb()()))
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return getattr(client, name)(request=parsed, timeout=SECONDS, retry=None)

    def _observed(self, call: Callable[[], Any]) -> Observation:
        try:
            return Observation(OK, value=call())
        except exceptions.GoogleAPICallError as error:
            code = _code(error)
            about = kind_of(error.message) if code in ("NOT_FOUND", "ALREADY_EXISTS") else ""
            return Observation(code, about, text=error.message)
        except requests.Timeout as error:
            return Observation("NO_ANSWER", text=str(error))
        except ValueError as error:  # the REST client knows by itself that no URL fits
            return Observation("NO_URL", text=str(error))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(key): self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, str):
            value = value.replace("{P}", f"projects/{self._project}")
            for revision, symbol in self._revisions.items():
                value = value.replace(f"{{{symbol}}}", revision)
            for mark, moment in self._marks.items():
                value = value.replace(f"{{{mark}}}", moment)
            value = re.sub(r"\{k\d+\}", _NEVER, value)  # a mark that was cut away
        return value

    def seen(self, value: Any) -> Any:
        self._learn_revisions(value)
        words = {f"projects/{self._project}": "{P}"} | {r: f"{{{symbol}}}" for r, symbol in self._revisions.items()}
        return normalised(value, words)

    def _learn_revisions(self, value: Any) -> None:
        if isinstance(value, dict):
            if revision := value.get("revision_id"):
                self._revisions.setdefault(revision, f"r{len(self._revisions)}")
            for item in value.values():
                self._learn_revisions(item)
        elif isinstance(value, list):
            for item in value:
                self._learn_revisions(item)

    # What goes beyond one call.

    def mark(self, mark: str) -> None:
        """A moment that lies clearly between what was before and what comes after."""
        time.sleep(0.015)
        now = time.time()
        self._marks[mark] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06}Z"
        time.sleep(0.015)

    def publish(self, operation: Operation) -> Observation:
        request = self._filled(operation.request)
        messages = [_with_data(message) for message in request.get("messages", [])]

        def send() -> Any:
            answer = self.send("Publish", request | {"messages": messages}, rest=operation.rest)
            symbols = [symbol_of(message) for message in messages]
            self._ids.update(zip(symbols, answer.message_ids, strict=False))
            return {"count": len(answer.message_ids), "distinct": len(set(answer.message_ids))}

        return self._observed(send)

    def walk(self, operation: Operation) -> Observation:
        """All pages: how long each is, and what was in them, sorted."""
        request = self._filled(operation.request)

        def walk() -> Any:
            method, sizes, found, token = request["method"], [], [], ""
            for _ in range(50):
                arguments = {key: value for key, value in request.items() if key != "method"} | {"page_token": token}
                page = next(iter(self.send(method, arguments, rest=operation.rest).pages))
                items = next((list(value) for _, value in _fields(page) if not isinstance(value, str)), [])
                sizes.append(len(items))
                found += [getattr(item, "name", item) for item in items]
                if not (token := page.next_page_token):
                    return self.seen({"sizes": sizes, "found": sorted(found)})
            raise AssertionError(f"{method} never ends")

        return self._observed(walk)

    def look(self, subscription: str, *, rest: bool = False) -> tuple[Observation, list[Received]]:
        """One pull that does not wait."""
        received: list[Received] = []

        def pull() -> None:
            request = {"subscription": self._filled(subscription), "max_messages": 1000, "return_immediately": True}
            received.extend(map(self._received, self.send("Pull", request, rest=rest).received_messages))

        observed = self._observed(pull)
        self._keep(subscription, received)
        return observed, received

    def _received(self, received: Any) -> Received:
        pb = types.ReceivedMessage.pb(received)
        message = self.seen(plain(pb.message))
        symbol = symbol_of(message)
        # A dead letter carries what it was, and an id of its own.
        told = {
            "message": message,
            "attempt": pb.delivery_attempt,
            "has the published id": self._ids.get(symbol) == pb.message.message_id,
        }
        for key in message.get("attributes", {}):
            if key.endswith("PublishTime") or key == "holdfast-source-message-id":
                message["attributes"][key] = "set"
        return Received(symbol, told, pb.ack_id)

    def _keep(self, subscription: str, received: list[Received]) -> None:
        for one in received:
            self._deliveries[subscription, one.symbol].append(one.ack_id)

    def settle(self, operation: Operation) -> Observation:
        """Acknowledge or ModifyAckDeadline, of messages or of given ack ids. `late` takes the delivery before the last
        one."""
        request = dict(self._filled(operation.request))
        late = request.pop("late", False)
        subscription = operation.request["subscription"]
        for symbol in request.pop("messages", []):
            deliveries = self._deliveries.get((operation.request.get("of", subscription), symbol), [])
            request.setdefault("ack_ids", []).extend(deliveries[:1] if late else deliveries[-1:])
        request.pop("of", None)
        return self._observed(lambda: self.send(operation.do, request, rest=operation.rest) or {})

    def acknowledge(self, subscription: str, received: list[Received]) -> None:
        self._answer_all("Acknowledge", subscription, received, {})

    def nack(self, subscription: str, received: list[Received]) -> None:
        self._answer_all("ModifyAckDeadline", subscription, received, {"ack_deadline_seconds": 0})

    def _answer_all(self, method: str, subscription: str, received: list[Received], more: dict[str, Any]) -> None:
        if received:
            name = self._filled(subscription)
            self.send(method, {"subscription": name, "ack_ids": [one.ack_id for one in received], **more})

    @contextmanager
    def stream(self, first: dict[str, Any]) -> Iterator[Stream]:
        stream = Stream(self, self._filled(first))
        try:
            yield stream
        finally:
            stream.close()

    def open_stream(self, requests: Iterator[Any]) -> Any:
        return self._grpc[1].streaming_pull(requests=requests, timeout=SECONDS, retry=None)

    def observe(self, call: Callable[[], Any]) -> Observation:
        return self._observed(call)


class Stream:
    """A streaming pull whose answers are read by a thread."""

    def __init__(self, side: Side, first: dict[str, Any]) -> None:
        self._side = side
        self._subscription = first.get("subscription", "")
        self._requests: queue.Queue[Any] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()
        self._requests.put(
            types.StreamingPullRequest.wrap(json_format.ParseDict(first, types.StreamingPullRequest.pb()()))
        )
        self._call: Any = None
        self.ended: Observation | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        def read() -> None:
            self._call = self._side.open_stream(iter(self._requests.get, None))
            for answer in self._call:
                self._answers.put(answer)

        self.ended = self._side.observe(read)

    def look(self, subscription: str) -> tuple[Observation, list[Received]]:
        """What has come, after a short wait for more."""
        received: list[Any] = []
        try:
            while True:
                received += self._answers.get(timeout=STREAM_LOOK_SECONDS).received_messages
        except queue.Empty:
            pass
        found = [self._side._received(one) for one in received]
        self._side._keep(subscription, found)
        return self.ended or Observation(OK), found

    def send(self, **request: Any) -> None:
        self._requests.put(types.StreamingPullRequest(**request))

    def close(self) -> None:
        """Half-closes, which both take as the end."""
        self._requests.put(None)
        self._thread.join(1.0)
        if self._thread.is_alive() and self._call is not None:
            self._call.cancel()
        self._thread.join()


def _code(error: exceptions.GoogleAPICallError) -> str:
    if error.grpc_status_code is not None:
        return str(error.grpc_status_code.name)
    try:
        return str(error.response.json()["error"]["status"])
    except (AttributeError, ValueError, KeyError):
        return f"HTTP {error.code}"


def _fields(page: Any) -> list[tuple[str, Any]]:
    pb = type(page).pb(page)
    return [(field.name, getattr(page, field.name)) for field, _ in pb.ListFields()]


def _with_data(message: dict[str, Any]) -> dict[str, Any]:
    """`data` is text, `size` asks for so many bytes instead."""
    message = dict(message)
    size = message.pop("size", None)
    data = b"x" * size if size is not None else message.pop("data", "").encode()
    if data:
        message["data"] = base64.b64encode(data).decode()
    if "attributes" in message:
        message["attributes"] = {
            key: "v" * value if isinstance(value, int) else value for key, value in message["attributes"].items()
        }
    return message


def symbol_of(message: dict[str, Any]) -> str:
    """Of a message in JSON."""
    named: str = message.get("attributes", {}).get("n", "")
    return named or base64.b64decode(message.get("data", "")).decode(errors="replace")[:12]
