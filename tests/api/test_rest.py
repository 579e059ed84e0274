"""The Pub/Sub API over REST: Google's own REST client, the same tests over gRPC, and plain HTTP for what is wrong."""

from __future__ import annotations

import asyncio
import base64
import datetime
import gzip
import io
import itertools
import json
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1 import PublisherClient, SchemaServiceClient, SubscriberClient
from google.pubsub_v1.services.publisher import transports as publisher_transports
from google.pubsub_v1.services.schema_service import transports as schema_transports
from google.pubsub_v1.services.subscriber import transports as subscriber_transports
from google.pubsub_v1.types import (
    CreateSchemaRequest,
    Encoding,
    ListTopicsRequest,
    PublishRequest,
    PubsubMessage,
    Schema,
    SchemaView,
    Topic,
    UpdateSubscriptionRequest,
    pubsub,
)
from yarl import URL

from holdfast import errors
from holdfast.api.grpc.methods import Method
from holdfast.api.rest.app import rest_app
from holdfast.api.rest.body import LARGEST_BODY_BYTES
from holdfast.api.rest.rules import Rule, all_rules
from holdfast.settings import BrokerSettings, GeneralSettings, Settings
from holdfast.wiring.processes.broker import running_broker

SECONDS = 10.0  # longest wait for any one call

_numbers = itertools.count()

# Deprecated, but an empty pull that waits would make every test wait.
pytestmark = pytest.mark.filterwarnings("ignore:The return_immediately flag")


class Server:
    """A broker in memory, with everything that `holdfast broker` starts, in an event loop on a thread of its own."""

    def __init__(self) -> None:
        self._ports: queue.Queue[int] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.address = f"127.0.0.1:{self._ports.get(timeout=SECONDS)}"

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings = Settings(general=GeneralSettings(memory=True), broker=BrokerSettings(port=0))
        async with running_broker(settings) as running:
            self._ports.put(running.broker_port)
            await self._stop.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = Server()
    yield server.address
    server.stop()


@pytest.fixture
def project() -> str:
    """Tests share one broker, each in a project of its own."""
    return f"projects/proj-{next(_numbers)}"


@dataclass
class Clients:
    publisher: Any
    subscriber: Any
    schemas: Any

    def make(self, project: str, **config: Any) -> tuple[str, str]:
        """A topic and a subscription, both named orders."""
        topic, subscription = f"{project}/topics/orders", f"{project}/subscriptions/orders"
        self.publisher.create_topic(name=topic, timeout=SECONDS)
        self.subscriber.create_subscription(request={"name": subscription, "topic": topic, **config}, timeout=SECONDS)
        return topic, subscription

    def pull(self, subscription: str) -> list[Any]:
        request = {"subscription": subscription, "max_messages": 100, "return_immediately": True}
        return list(self.subscriber.pull(request=request, timeout=SECONDS).received_messages)


def over_rest(address: str) -> Clients:
    credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {"host": address, "url_scheme": "http", "credentials": credentials}
    transports = (
        publisher_transports.PublisherRestTransport(**options),
        subscriber_transports.SubscriberRestTransport(**options),
        schema_transports.SchemaServiceRestTransport(**options),
    )
    for transport in transports:
        transport._session.trust_env = False  # no proxy, whatever the environment says: it is this machine
    return Clients(
        PublisherClient(transport=transports[0]),
        SubscriberClient(transport=transports[1]),
        SchemaServiceClient(transport=transports[2]),
    )


def over_grpc(address: str) -> Clients:
    channel = grpc.insecure_channel(address)
    return Clients(
        PublisherClient(transport=publisher_transports.PublisherGrpcTransport(channel=channel)),
        SubscriberClient(transport=subscriber_transports.SubscriberGrpcTransport(channel=channel)),
        SchemaServiceClient(transport=schema_transports.SchemaServiceGrpcTransport(channel=channel)),
    )


@pytest.fixture(params=[over_rest, over_grpc])
def clients(address: str, request: pytest.FixtureRequest) -> Iterator[Clients]:
    connected: Clients = request.param(address)
    yield connected
    connected.publisher.transport.close()
    connected.subscriber.transport.close()
    connected.schemas.transport.close()


# Official clients, the same over both.


def test_topics(clients: Clients, project: str) -> None:
    topic, subscription = clients.make(project)
    changed = clients.publisher.update_topic(
        request={"topic": {"name": topic, "labels": {"team": "a"}}, "update_mask": {"paths": ["labels"]}},
        timeout=SECONDS,
    )
    assert changed.labels == {"team": "a"}
    found = clients.publisher.get_topic(topic=topic, timeout=SECONDS)
    assert (found.name, found.labels, found.state) == (topic, {"team": "a"}, Topic.State.ACTIVE)
    assert list(clients.publisher.list_topic_subscriptions(topic=topic, timeout=SECONDS)) == [subscription]
    assert list(clients.publisher.list_topic_snapshots(topic=topic, timeout=SECONDS)) == []
    clients.publisher.detach_subscription(request={"subscription": subscription}, timeout=SECONDS)
    assert clients.subscriber.get_subscription(subscription=subscription, timeout=SECONDS).detached
    clients.publisher.delete_topic(topic=topic, timeout=SECONDS)
    with pytest.raises(exceptions.NotFound, match="orders"):
        clients.publisher.get_topic(topic=topic, timeout=SECONDS)


def test_lists_have_pages(clients: Clients, project: str) -> None:
    names = [f"{project}/topics/topic-{number}" for number in range(7)]
    for name in names:
        clients.publisher.create_topic(name=name, timeout=SECONDS)
    listed = clients.publisher.list_topics(request={"project": project, "page_size": 3}, timeout=SECONDS)
    assert [len(page.topics) for page in listed.pages] == [3, 3, 1]
    listed = clients.publisher.list_topics(request={"project": project, "page_size": 3}, timeout=SECONDS)
    assert [topic.name for topic in listed] == names


def test_subscriptions(clients: Clients, project: str) -> None:
    _, subscription = clients.make(
        project,
        ack_deadline_seconds=77,
        labels={"team": "a"},
        enable_message_ordering=True,
        retry_policy={"minimum_backoff": {"seconds": 1, "nanos": 500_000_000}, "maximum_backoff": {"seconds": 60}},
    )
    found = clients.subscriber.get_subscription(subscription=subscription, timeout=SECONDS)
    assert (found.ack_deadline_seconds, found.labels, found.enable_message_ordering) == (77, {"team": "a"}, True)
    assert found.retry_policy.minimum_backoff.total_seconds() == 1.5
    assert found.state == pubsub.Subscription.State.ACTIVE
    changed = clients.subscriber.update_subscription(
        request={
            "subscription": {"name": subscription, "ack_deadline_seconds": 33},
            "update_mask": {"paths": ["ack_deadline_seconds"]},
        },
        timeout=SECONDS,
    )
    assert (changed.ack_deadline_seconds, changed.labels) == (33, {"team": "a"})
    clients.subscriber.modify_push_config(
        subscription=subscription, push_config={"push_endpoint": "http://127.0.0.1:9/x"}, timeout=SECONDS
    )
    found = clients.subscriber.get_subscription(subscription=subscription, timeout=SECONDS)
    assert found.push_config.push_endpoint == "http://127.0.0.1:9/x"
    listed = clients.subscriber.list_subscriptions(project=project, timeout=SECONDS)
    assert [one.name for one in listed] == [subscription]
    clients.subscriber.delete_subscription(subscription=subscription, timeout=SECONDS)
    assert list(clients.subscriber.list_subscriptions(project=project, timeout=SECONDS)) == []


def test_publish_pull_nack_ack(clients: Clients, project: str) -> None:
    topic, subscription = clients.make(project)
    data = bytes(range(256))
    message = PubsubMessage(data=data, attributes={"ä": "ö"}, ordering_key="k")
    (message_id,) = clients.publisher.publish(topic=topic, messages=[message], timeout=SECONDS).message_ids
    (received,) = clients.pull(subscription)
    assert received.message.message_id == message_id
    assert (received.message.data, received.message.attributes) == (data, {"ä": "ö"})
    assert received.message.ordering_key == "k"
    age = datetime.datetime.now(datetime.UTC) - received.message.publish_time
    assert abs(age.total_seconds()) < 60
    clients.subscriber.modify_ack_deadline(
        subscription=subscription, ack_ids=[received.ack_id], ack_deadline_seconds=0, timeout=SECONDS
    )
    (again,) = clients.pull(subscription)
    assert again.message.message_id == message_id
    clients.subscriber.acknowledge(subscription=subscription, ack_ids=[again.ack_id], timeout=SECONDS)
    assert clients.pull(subscription) == []


def test_snapshots_and_seek(clients: Clients, project: str) -> None:
    topic, subscription = clients.make(project)
    name = f"{project}/snapshots/before"
    created = clients.subscriber.create_snapshot(name=name, subscription=subscription, timeout=SECONDS)
    assert (created.name, created.topic) == (name, topic)
    assert clients.subscriber.get_snapshot(snapshot=name, timeout=SECONDS).expire_time == created.expire_time
    changed = clients.subscriber.update_snapshot(
        request={"snapshot": {"name": name, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}},
        timeout=SECONDS,
    )
    assert changed.labels == {"a": "b"}
    assert [one.name for one in clients.subscriber.list_snapshots(project=project, timeout=SECONDS)] == [name]
    clients.publisher.publish(topic=topic, messages=[PubsubMessage(data=b"x")], timeout=SECONDS)
    (received,) = clients.pull(subscription)
    clients.subscriber.acknowledge(subscription=subscription, ack_ids=[received.ack_id], timeout=SECONDS)
    clients.subscriber.seek(request={"subscription": subscription, "snapshot": name}, timeout=SECONDS)
    assert [item.message.data for item in clients.pull(subscription)] == [b"x"]
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    clients.subscriber.seek(request={"subscription": subscription, "time": now}, timeout=SECONDS)
    assert clients.pull(subscription) == []
    clients.subscriber.delete_snapshot(snapshot=name, timeout=SECONDS)
    assert list(clients.subscriber.list_snapshots(project=project, timeout=SECONDS)) == []


def avro(field: str) -> str:
    fields = [{"name": field, "type": "string", "default": ""}]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def test_schemas(clients: Clients, project: str) -> None:
    name = f"{project}/schemas/order"
    schema = {"type_": Schema.Type.AVRO, "definition": avro("id")}
    created = clients.schemas.create_schema(parent=project, schema=schema, schema_id="order", timeout=SECONDS)
    assert (created.name, created.type_, created.definition) == (name, Schema.Type.AVRO, avro("id"))
    changed = clients.schemas.commit_schema(
        name=name, schema={**schema, "name": name, "definition": avro("number")}, timeout=SECONDS
    )
    assert clients.schemas.get_schema(name=name, timeout=SECONDS).revision_id == changed.revision_id
    (listed,) = clients.schemas.list_schemas(request={"parent": project, "view": SchemaView.FULL}, timeout=SECONDS)
    assert listed.definition == avro("number")
    back = clients.schemas.rollback_schema(name=name, revision_id=created.revision_id, timeout=SECONDS)
    assert back.definition == avro("id")
    revisions = list(clients.schemas.list_schema_revisions(name=name, timeout=SECONDS))
    assert [one.revision_id for one in revisions] == [one.revision_id for one in (back, changed, created)]
    clients.schemas.delete_schema_revision(request={"name": f"{name}@{changed.revision_id}"}, timeout=SECONDS)
    clients.schemas.validate_schema(parent=project, schema=schema, timeout=SECONDS)
    message = {"parent": project, "name": name, "message": b'{"id": "1"}', "encoding": Encoding.JSON}
    clients.schemas.validate_message(request=message, timeout=SECONDS)
    with pytest.raises(exceptions.BadRequest):
        clients.schemas.validate_message(request={**message, "message": b"5"}, timeout=SECONDS)
    clients.schemas.delete_schema(name=name, timeout=SECONDS)
    assert list(clients.schemas.list_schemas(parent=project, timeout=SECONDS)) == []


def test_policies(clients: Clients, project: str) -> None:
    topic, _ = clients.make(project)
    binding = {"role": "roles/pubsub.publisher", "members": ["user:a@example.com"]}
    clients.publisher.set_iam_policy(request={"resource": topic, "policy": {"bindings": [binding]}}, timeout=SECONDS)
    found = clients.publisher.get_iam_policy(
        request={"resource": topic, "options": {"requested_policy_version": 3}}, timeout=SECONDS
    )
    assert [(one.role, list(one.members)) for one in found.bindings] == [(binding["role"], binding["members"])]
    asked = {"resource": topic, "permissions": ["pubsub.topics.publish"]}
    answer = clients.publisher.test_iam_permissions(request=asked, timeout=SECONDS)
    assert list(answer.permissions) == asked["permissions"]


def test_errors(clients: Clients, project: str) -> None:
    topic, subscription = clients.make(project)
    with pytest.raises(exceptions.Conflict, match="orders"):
        clients.publisher.create_topic(name=topic, timeout=SECONDS)
    with pytest.raises(exceptions.BadRequest, match="ack_ids"):
        clients.subscriber.acknowledge(subscription=subscription, ack_ids=["nonsense"], timeout=SECONDS)
    message = PubsubMessage(data=b"x" * 10_000_001)
    with pytest.raises(exceptions.BadRequest, match="bytes"):
        clients.publisher.publish(topic=topic, messages=[message], timeout=SECONDS)


def test_a_request_of_10_megabytes_goes_through(clients: Clients, project: str) -> None:
    topic, subscription = clients.make(project)
    message = PubsubMessage(data=b"x" * 9_990_000)
    clients.publisher.publish(topic=topic, messages=[message], timeout=SECONDS)
    if isinstance(clients.publisher.transport, publisher_transports.PublisherRestTransport):  # else a client's limit
        (received,) = clients.pull(subscription)
        assert received.message.data == message.data


# Plain HTTP.


@dataclass
class Http:
    session: aiohttp.ClientSession
    base: str

    async def __call__(self, verb: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        data = io.BytesIO(body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode())
        async with self.session.request(verb, self.base + path, data=data, **options) as response:
            assert response.headers["content-type"] == "application/json; charset=UTF-8"
            return response.status, await response.json()


@pytest.fixture
async def http(address: str) -> AsyncIterator[Http]:
    timeout = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield Http(session, f"http://{address}")


@pytest.fixture
async def topic(http: Http, project: str) -> str:
    """The path of a topic, with a subscription of the same id."""
    await http("PUT", f"/v1/{project}/topics/orders")
    await http("PUT", f"/v1/{project}/subscriptions/orders", {"topic": f"{project}/topics/orders"})
    return f"/v1/{project}/topics/orders"


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_json_has_googles_names(http: Http, topic: str) -> None:
    subscription = topic.replace("topics", "subscriptions")
    code, found = await http("GET", subscription)
    assert code == 200
    assert found["name"] == subscription.removeprefix("/v1/")
    assert found["ackDeadlineSeconds"] == 10
    assert found["messageRetentionDuration"] == "604800s"
    assert found["state"] == "ACTIVE"
    assert "ack_deadline_seconds" not in found


async def test_publish_and_pull_by_hand(http: Http, topic: str) -> None:
    message = {"data": in_base64(b"hello"), "attributes": {"a": "1"}, "orderingKey": "k"}
    code, published = await http("POST", f"{topic}:publish", {"messages": [message]})
    assert code == 200
    subscription = topic.replace("topics", "subscriptions")
    code, pulled = await http("POST", f"{subscription}:pull", {"maxMessages": 1})
    assert code == 200
    (received,) = pulled["receivedMessages"]
    assert received["message"] == {
        **message,
        "messageId": published["messageIds"][0],
        "publishTime": received["message"]["publishTime"],
    }
    assert received["message"]["publishTime"].endswith("Z")
    assert await http("POST", f"{subscription}:acknowledge", {"ackIds": [received["ackId"]]}) == (200, {})
    assert await http("POST", f"{subscription}:pull", {"maxMessages": 1, "returnImmediately": True}) == (200, {})


@pytest.mark.parametrize("parameter", ["$alt", "alt"])
async def test_enums_are_numbers_for_who_asks(http: Http, topic: str, parameter: str) -> None:
    _, found = await http("GET", topic, params={parameter: "json;enum-encoding=int"})
    assert found["state"] == 1
    _, found = await http("GET", topic, params={parameter: "json"})
    assert found["state"] == "ACTIVE"


async def test_standard_parameters_are_ignored(http: Http, topic: str) -> None:
    names = ("key", "access_token", "oauth_token", "fields", "prettyPrint", "quotaUser", "$.xgafv", "callback")
    code, _ = await http("GET", topic, params=dict.fromkeys(names, "x"))
    assert code == 200


@pytest.mark.parametrize(("size", "token"), [("pageSize", "pageToken"), ("page_size", "page_token")])
async def test_pages_by_query(http: Http, project: str, size: str, token: str) -> None:
    for number in range(3):
        await http("PUT", f"/v1/{project}/topics/topic-{number}")
    path = f"/v1/{project}/topics"
    _, first = await http("GET", path, params={size: "2"})
    assert [one["name"][-1] for one in first["topics"]] == ["0", "1"]
    _, second = await http("GET", path, params={size: "2", token: first["nextPageToken"]})
    assert [one["name"][-1] for one in second["topics"]] == ["2"]
    assert "nextPageToken" not in second


@pytest.mark.parametrize("mask", ["ackDeadlineSeconds,labels", "ack_deadline_seconds,labels"])
async def test_masks(http: Http, topic: str, mask: str) -> None:
    subscription = topic.replace("topics", "subscriptions")
    body = {"subscription": {"ackDeadlineSeconds": 44, "labels": {"a": "b"}, "filter": "ignored"}, "updateMask": mask}
    code, changed = await http("PATCH", subscription, body)
    assert code == 200, changed
    assert (changed["ackDeadlineSeconds"], changed["labels"]) == (44, {"a": "b"})
    del body["updateMask"]
    code, changed = await http("PATCH", subscription, body, params={"updateMask": mask})
    assert code == 200, changed


async def test_the_path_names_the_resource_whatever_the_body_says(http: Http, project: str) -> None:
    path = f"{project}/topics/from-path"
    code, created = await http("PUT", f"/v1/{path}", {"name": f"{project}/topics/from-body"})
    assert (code, created["name"]) == (200, path)


async def test_ids_may_be_percent_encoded(http: Http, project: str) -> None:
    code, created = await http("PUT", f"/v1/{project}/topics/a%2525b~c+d")
    assert (code, created["name"]) == (200, f"{project}/topics/a%25b~c+d")
    url = http.base + f"/v1/{project}/topics/a%2525b~c%2Bd%3Apublish"
    async with http.session.post(URL(url, encoded=True), data=b'{"messages": [{"data": "eA=="}]}') as ok:
        assert ok.status == 200


async def test_delete_answers_an_empty_object(http: Http, topic: str) -> None:
    assert await http("DELETE", topic) == (200, {})


async def test_get_root_says_ok(http: Http) -> None:
    async with http.session.get(f"{http.base}/") as response:
        assert (response.status, await response.text()) == (200, "Ok\n")
    async with http.session.head(f"{http.base}/") as response:
        assert response.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "GZIP"])
async def test_gzip(http: Http, topic: str, encoding: str) -> None:
    body = json.dumps({"messages": [{"data": in_base64(b"x")}]}).encode()
    both = gzip.compress(body[:9]) + gzip.compress(body[9:])
    for packed in (gzip.compress(body), both):
        code, answer = await http("POST", f"{topic}:publish", packed, headers={"Content-Encoding": encoding})
        assert code == 200, answer


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (gzip.compress(b" " * (LARGEST_BODY_BYTES + 1)), {"Content-Encoding": "gzip"}, 413),
        (gzip.compress(b"{}")[:-3], {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 400),
        (b" " * (LARGEST_BODY_BYTES + 1), {}, 413),
    ],
    ids=["bomb", "cut", "plain", "br", "large"],
)
async def test_bodies_that_are_refused(
    http: Http, topic: str, body: bytes, headers: Mapping[str, str], code: int
) -> None:
    found, answer = await http("POST", f"{topic}:publish", body, headers=headers)
    assert (found, answer["error"]["status"]) == (code, "INVALID_ARGUMENT")
    assert (await http("GET", topic))[0] == 200


async def test_a_large_body_in_pieces_is_refused_too(http: Http, topic: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_BODY_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    async with http.session.post(f"{http.base}{topic}:publish", data=pieces()) as response:
        assert response.status == 413


PUBLISH = ":publish"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (PUBLISH, {"messages": [{"data": "eA=="}], "nonsense": 1}, "nonsense"),
        (PUBLISH, {"messages": [{"data": "eA=="}, {"nonsense": 1}]}, "messages[1].nonsense"),
        (PUBLISH, {"messages": [{"data": "not base64!"}]}, "messages[0].data"),
        (PUBLISH, {"messages": [{"data": "é"}]}, "messages[0].data"),
        (PUBLISH, {"messages": [{"data": "abcde"}]}, "messages[0].data"),
        (PUBLISH, {"messages": [{"data": 5}]}, "messages[0].data"),
        (PUBLISH, {"messages": [{"attributes": {"a": 5}}]}, "messages[0].attributes['a']"),
        (PUBLISH, {"messages": [{"attributes": []}]}, "messages[0].attributes"),
        (PUBLISH, {"messages": {}}, "messages"),
        (PUBLISH, {"messages": [5]}, "messages[0]"),
        (PUBLISH, {"messages": [None]}, "messages[0]"),
        (PUBLISH, {"messages": [{"publishTime": "yesterday"}]}, "messages[0].publishTime"),
        (PUBLISH, {"topic": 5}, "topic"),
        (PUBLISH, {}, "messages"),
        (PUBLISH, [], "body"),
        (PUBLISH, "text", "body"),
        (PUBLISH, b"{", "body"),
        (PUBLISH, b"\xff", "body"),
        (PUBLISH, b"[" * 100_000, "body"),
        (PUBLISH, b'{"topic": "\\ud800"}', "body"),
        (PUBLISH, b'{"\\ud800": 1}', "body"),
        (PUBLISH, b'{"topic": NaN}', "body"),
        (PUBLISH, b'{"messages": ' + b"9" * 5000 + b"}", "body"),
        (f"{PUBLISH}?nonsense=1", {"messages": [{"data": "eA=="}]}, "nonsense"),
        (f"{PUBLISH}?messages.data=eA", {}, "messages.data"),
        (f"{PUBLISH}?topic=a&topic=b", {}, "topic"),
        (PUBLISH + "?" + "&".join(["topic=a"] * 2000), {}, "query"),
    ],
)
async def test_bad_requests_name_the_field(http: Http, topic: str, path: str, body: Any, field: str) -> None:
    code, answer = await http("POST", topic + path, body)
    error = answer["error"]
    assert (code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert error["message"].startswith(f"{field}: "), error["message"]
    assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert error["details"][0]["fieldViolations"][0]["field"] == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"subscription": {"ackDeadlineSeconds": "x"}}, "subscription.ackDeadlineSeconds"),
        ({"subscription": {"ackDeadlineSeconds": 1.5}}, "subscription.ackDeadlineSeconds"),
        ({"subscription": {"state": "NONE_SUCH"}}, "subscription.state"),
        (b'{"subscription": {"state": 1e400}}', "body"),
        ({"subscription": {"messageRetentionDuration": "7"}}, "subscription.messageRetentionDuration"),
        ({"subscription": {"pushConfig": {"nonsense": 1}}}, "subscription.pushConfig.nonsense"),
        ({"updateMask": 5}, "updateMask"),
    ],
)
async def test_bad_values_name_the_field(http: Http, topic: str, change: Any, field: str) -> None:
    code, answer = await http("PATCH", topic.replace("topics", "subscriptions"), change)
    assert (code, answer["error"]["details"][0]["fieldViolations"][0]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/nowhere"),
        ("POST", "/v1/projects/p/topics/orders:nonsense"),
        ("POST", "/v1/projects/p/topics/orders"),
        ("GET", "/v1/projects/p/topics/"),
        ("GET", "/v1/projects/p/topics/a/b/c"),
        ("GET", "/v2/projects/p/topics/orders"),
        ("GET", "/v1/projects/p/topics/nowhere"),
    ],
)
async def test_what_is_not_there_is_404(http: Http, verb: str, path: str) -> None:
    code, answer = await http(verb, path)
    assert (code, answer["error"]["code"], answer["error"]["status"]) == (404, 404, "NOT_FOUND")


async def test_streaming_pull_says_that_it_needs_grpc(http: Http, topic: str) -> None:
    code, answer = await http("POST", topic.replace("topics", "subscriptions") + ":streamingPull", {})
    assert (code, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
    assert "gRPC" in answer["error"]["message"]


# The application alone, with methods of our own.


async def ask(app: Any, verb: str, target: str, body: bytes = b"") -> tuple[int, Any]:
    sent = await exchange(app, verb, target, [{"type": "http.request", "body": body}])
    return sent[0]["status"], json.loads(sent[1]["body"])


async def exchange(app: Any, verb: str, target: str, given: list[Any]) -> list[Any]:
    """What the application sends for the events that it is given."""
    path, _, query = target.partition("?")
    sent: list[Any] = []
    events = iter(given)

    async def receive() -> Any:
        event = next(events, None)
        return event or await asyncio.Event().wait()

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "method": verb,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }
    await app(scope, receive, send)
    return sent


def app_with(rule: tuple[str, str], method: Method) -> Any:
    service, name = rule
    return rest_app({f"google.pubsub.v1.{service}": {name: method}})


async def test_a_method_that_is_not_offered_is_501() -> None:
    code, answer = await ask(rest_app({}), "GET", "/v1/projects/p/schemas/s")
    assert (code, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
    assert "GetSchema" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (errors.BadInput("x", "bad"), 400, "INVALID_ARGUMENT"),
        (errors.NotFound("x"), 404, "NOT_FOUND"),
        (errors.AlreadyExists("x"), 409, "ALREADY_EXISTS"),
        (errors.FailedPrecondition("x"), 400, "FAILED_PRECONDITION"),
        (errors.Unsupported("x", "no"), 501, "UNIMPLEMENTED"),
        (errors.StorageUnavailable("x"), 503, "UNAVAILABLE"),
        (TimeoutError(), 504, "DEADLINE_EXCEEDED"),
        (ValueError("a secret"), 500, "INTERNAL"),
        (errors.HoldfastError("a secret"), 500, "INTERNAL"),
    ],
)
async def test_errors_have_googles_codes(error: Exception, code: int, status: str) -> None:
    async def fail(request: Any) -> Any:
        raise error

    app = app_with(("Publisher", "ListTopics"), Method(ListTopicsRequest.pb(), fail))
    found, answer = await ask(app, "GET", "/v1/projects/p/topics")
    assert (found, answer["error"]["code"], answer["error"]["status"]) == (code, code, status)
    assert "secret" not in answer["error"]["message"]


async def test_stale_ack_ids_are_listed_in_the_details() -> None:
    async def fail(request: Any) -> Any:
        raise errors.StaleAckIds(["a-1"])

    app = app_with(("Publisher", "ListTopics"), Method(ListTopicsRequest.pb(), fail))
    _, answer = await ask(app, "GET", "/v1/projects/p/topics")
    (detail,) = answer["error"]["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert detail["metadata"] == {"a-1": "PERMANENT_FAILURE_INVALID_ACK_ID"}


async def test_a_body_that_is_one_field() -> None:
    async def create(request: Any) -> Any:
        assert (request.parent, request.schema_id) == ("projects/p", "s")
        return request.schema

    app = app_with(("SchemaService", "CreateSchema"), Method(CreateSchemaRequest.pb(), create))
    path = "/v1/projects/p/schemas?schemaId=s&$alt=json;enum-encoding=int"
    code, answer = await ask(app, "POST", path, b'{"type": "AVRO", "definition": "{}"}')
    assert (code, answer) == (200, {"type": int(Schema.Type.AVRO), "definition": "{}"})
    code, answer = await ask(app, "POST", path, b'{"schema": {}}')
    assert (code, answer["error"]["message"]) == (400, "schema: unknown field")


@pytest.mark.parametrize(
    ("query", "field", "expected"),
    [
        ("subscription.ackDeadlineSeconds=5", "ack_deadline_seconds", 5),
        ("subscription.ack_deadline_seconds=5", "ack_deadline_seconds", 5),
        ("subscription.state=ACTIVE", "state", 1),
        ("subscription.state=2", "state", 2),
        ("subscription.detached=true", "detached", True),
        ("subscription.filter=a%20b%2Bc", "filter", "a b+c"),
        ("subscription.pushConfig.pushEndpoint=http://x", "push_config", {"push_endpoint": "http://x"}),
        ("subscription.messageRetentionDuration=7s", "message_retention_duration", {"seconds": 7}),
    ],
)
async def test_query_parameters_reach_nested_fields(query: str, field: str, expected: Any) -> None:
    given: list[Any] = []

    async def take(request: Any) -> Any:
        given.append(request)
        return request

    app = app_with(("Subscriber", "UpdateSubscription"), Method(UpdateSubscriptionRequest.pb(), take))
    code, answer = await ask(app, "PATCH", f"/v1/projects/p/subscriptions/s?{query}")
    assert code == 200, answer
    wanted = pubsub.Subscription.pb()(name="projects/p/subscriptions/s", **{field: expected})
    assert given[0].subscription == wanted


@pytest.mark.parametrize(
    "query",
    [
        "subscription.detached=maybe",
        "subscription.ackDeadlineSeconds=many",
        "subscription.state=NONE_SUCH",
        "subscription=x",
        "subscription.labels.a=b",
        "subscription.messageTransforms.disabled=true",
        "updateMask.paths=a",
        "subscription.=x",
        ".=x",
        "=x",
    ],
)
async def test_query_parameters_that_make_no_sense(query: str) -> None:
    async def take(request: Any) -> Any:
        return request

    app = app_with(("Subscriber", "UpdateSubscription"), Method(UpdateSubscriptionRequest.pb(), take))
    code, answer = await ask(app, "PATCH", f"/v1/projects/p/subscriptions/s?{query}")
    assert (code, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_a_project_may_have_a_colon() -> None:
    async def take(request: Any) -> Any:
        return PublishRequest.pb()(topic=request.topic)

    app = app_with(("Publisher", "Publish"), Method(PublishRequest.pb(), take))
    _, answer = await ask(app, "POST", "/v1/projects/example.com:p/topics/orders:publish", b"{}")
    assert answer == {"topic": "projects/example.com:p/topics/orders"}


async def test_a_call_whose_client_left_ends() -> None:
    ended = asyncio.Event()

    async def wait(request: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = app_with(("Subscriber", "Pull"), Method(pubsub.PullRequest.pb(), wait))
    events = [{"type": "http.request", "body": b'{"maxMessages": 1}'}, {"type": "http.disconnect"}]
    assert await exchange(app, "POST", "/v1/projects/p/subscriptions/s:pull", events) == []
    assert ended.is_set()
    assert await exchange(app, "POST", "/v1/projects/p/subscriptions/s:pull", [{"type": "http.disconnect"}]) == []


# Rules.


def test_every_method_of_googles_client_has_its_rule() -> None:
    rules = list(all_rules())
    assert (
        Rule("google.pubsub.v1.Publisher", "Publish", "POST", "/v1/{topic=projects/*/topics/*}:publish", "*") in rules
    )
    assert (
        Rule("google.iam.v1.IAMPolicy", "GetIamPolicy", "GET", "/v1/{resource=projects/*/schemas/*}:getIamPolicy", "")
        in rules
    )
    by_service = {
        service: {rule.method for rule in rules if rule.service == service} for service in {r.service for r in rules}
    }
    assert {service: len(methods) for service, methods in by_service.items()} == {
        "google.pubsub.v1.Publisher": 9,
        "google.pubsub.v1.Subscriber": 16,
        "google.pubsub.v1.SchemaService": 10,
        "google.iam.v1.IAMPolicy": 3,
    }
