"""Random sequences, the same for the same seed.

A sketch of what probably exists makes most operations meet something; a share of the values is wrong on purpose. The
sketch sees no answers, so a sequence can be cut down and still means the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.differential import values
from tests.differential.operations import Operation

OPERATIONS = 40  # of one sequence

# Of the operations that exist for it, how many go over REST.
REST_SHARE = 0.15


def generate(seed: int, length: int = OPERATIONS) -> list[Operation]:
    return _Writer(random.Random(seed)).write(length)


class _Writer:
    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._topics: list[str] = []
        self._subscriptions: dict[str, dict[str, Any]] = {}
        self._snapshots: list[str] = []
        self._schemas: dict[str, str] = {}  # and their types
        self._messages: dict[str, list[str]] = {}  # symbols by topic
        self._message_count = self._revision_count = self._mark_count = 0
        self._written: list[Operation] = []

    def write(self, length: int) -> list[Operation]:
        self._create_topic()
        self._create_subscription()
        kinds, weights = zip(*self._kinds(), strict=True)
        while len(self._written) < length:
            self._random.choices(kinds, weights)[0]()
        return self._written[:length]

    def _kinds(self) -> list[tuple[Callable[[], None], float]]:
        """Each sequence has its own taste, so that some do little else than deliver, and others than administrate."""
        kinds = [
            (self._create_topic, 3.0),
            (self._create_subscription, 6),
            (self._topic_call, 4),
            (self._update_topic, 2),
            (self._subscription_call, 4),
            (self._update_subscription, 4),
            (self._modify_push, 1),
            (self._list, 3),
            (self._publish, 12),
            (self._take, 9),
            (self._stream, 2),
            (self._drain, 3),
            (self._exhaust, 1.5),
            (self._settle, 9),
            (self._seek, 4),
            (self._mark, 2),
            (self._create_snapshot, 3),
            (self._snapshot_call, 2),
            (self._schema, 3),
            (self._policy, 1),
        ]
        return [(kind, weight * self._random.choice((0.3, 1, 3))) for kind, weight in kinds]

    def _do(self, do: str, may_be_rest: bool = True, /, **request: Any) -> None:
        over_rest = may_be_rest and self._random.random() < REST_SHARE
        self._written.append(Operation(do, request, over_rest))

    # Names.

    def _name(self, kind: str, known: list[str], prefix: str) -> str:
        """Mostly one that exists."""
        dice = self._random.random()
        if known and dice < 0.88:
            return self._random.choice(known)
        if dice < 0.97:
            return f"{{P}}/{kind}/{prefix}{self._random.randrange(6)}"
        return self._random.choice(values.BAD_NAMES).replace("KIND", kind)

    def _topic(self) -> str:
        return self._name("topics", self._topics, "topic")

    def _subscription(self) -> str:
        return self._name("subscriptions", [*self._subscriptions], "worker")

    def _snapshot(self) -> str:
        return self._name("snapshots", self._snapshots, "snap")

    def _schema_name(self) -> str:
        return self._name("schemas", [*self._schemas], "schema")

    def _new_name(self, kind: str, prefix: str) -> str:
        if self._random.random() < 0.04:
            return self._random.choice(values.BAD_NAMES).replace("KIND", kind)
        return f"{{P}}/{kind}/{prefix}{self._random.randrange(4)}"

    # Topics.

    def _create_topic(self) -> None:
        name = self._new_name("topics", "topic")
        config = values.pick(self._random, values.TOPIC)
        if self._schemas and self._random.random() < 0.4:
            config["schema_settings"] = {
                "schema": self._schema_name(),
                "encoding": self._random.choice(values.ENCODINGS),
            }
        self._do("CreateTopic", name=name, **config)
        if name not in self._topics:
            self._topics.append(name)

    def _topic_call(self) -> None:
        name = self._topic()
        do = self._random.choice(
            ("GetTopic", "GetTopic", "ListTopicSubscriptions", "ListTopicSnapshots", "DeleteTopic")
        )
        self._do(do, topic=name)
        if do == "DeleteTopic" and name in self._topics:
            self._topics.remove(name)

    def _update_topic(self) -> None:
        topic = {"name": self._topic(), **values.pick(self._random, values.TOPIC)}
        self._do("UpdateTopic", topic=topic, update_mask=self._mask(["message_retention_duration"], values.TOPIC_MASKS))

    def _mask(self, usual: list[str], odd: list[str]) -> str:
        # Field masks are camel case in JSON.
        paths = self._random.sample(usual, min(len(usual), self._random.choice((1, 1, 1, 2))))
        if self._random.random() < 0.15:
            paths = [self._random.choice(odd)]
        return ",".join(
            "".join(part if not at else part[:1].upper() + part[1:] for at, part in enumerate(path.split("_")))
            for path in paths
        )

    # Subscriptions.

    def _create_subscription(self) -> None:
        name = self._new_name("subscriptions", "worker")
        config = values.pick(self._random, values.SUBSCRIPTION)
        if self._random.random() < 0.7:
            config.pop("filter", None)  # the emulator does not heed it, so most sequences end soon after
        if self._random.random() < 0.25:
            attempts = {"max_delivery_attempts": self._random.choice((5, 5, 5, 100, 0, 4, 101))}
            config["dead_letter_policy"] = {"dead_letter_topic": self._topic(), **attempts}
        self._do("CreateSubscription", name=name, topic=self._topic(), **config)
        self._subscriptions.setdefault(name, config)

    def _subscription_call(self) -> None:
        name = self._subscription()
        do = self._random.choice(
            ("GetSubscription", "GetSubscription", "GetSubscription", "DeleteSubscription", "DetachSubscription")
        )
        self._do(do, subscription=name)
        if do == "DeleteSubscription":
            self._subscriptions.pop(name, None)

    def _update_subscription(self) -> None:
        subscription = {"name": self._subscription(), **values.pick(self._random, values.SUBSCRIPTION)}
        if self._random.random() < 0.3:
            subscription["dead_letter_policy"] = {"dead_letter_topic": self._topic()}
        usual = [name for name in (*values.SUBSCRIPTION, "dead_letter_policy") if name not in values.SUBSCRIPTION_MASKS]
        mask = self._mask(usual, values.SUBSCRIPTION_MASKS)
        self._do("UpdateSubscription", subscription=subscription, update_mask=mask)

    def _modify_push(self) -> None:
        push = self._random.choice([*values.PUSH, {}])
        self._do("ModifyPushConfig", subscription=self._subscription(), push_config=push)

    # Lists.

    def _list(self) -> None:
        method, of = self._random.choice(
            (
                ("ListTopics", {"project": "{P}"}),
                ("ListSubscriptions", {"project": "{P}"}),
                ("ListSnapshots", {"project": "{P}"}),
                ("ListSchemas", {"parent": "{P}"}),
                ("ListTopicSubscriptions", {"topic": self._topic()}),
                ("ListTopicSnapshots", {"topic": self._topic()}),
            )
        )
        if self._random.random() < 0.1:
            of = {key: self._random.choice(("projects/", "nothing", "")) for key in of}
        dice = self._random.random()
        if dice < 0.5:
            self._do("Walk", method=method, page_size=self._random.choice((0, 1, 2, 1000)), **of)
        elif dice < 0.8:
            self._do(method, **of)
        else:
            self._do(method, page_size=self._random.choice((-1, 0, 1, 2_000_000)), **of)

    # Messages.

    def _publish(self) -> None:
        topic = self._topic()
        count = self._random.choice((1, 1, 2, 3, 5))
        if self._random.random() < 0.02:
            count = 0
        messages = [self._message() for _ in range(count)]
        if self._random.random() < 0.06:
            messages.append(dict(self._random.choice(values.BAD_MESSAGES)))
        self._do("Publish", topic=topic, messages=messages)

    def _message(self) -> dict[str, Any]:
        symbol = f"m{self._message_count}"
        self._message_count += 1
        self._messages.setdefault("", []).append(symbol)
        message: dict[str, Any] = {"data": symbol}
        dice = self._random.random()
        if dice < 0.5:
            message["attributes"] = {"n": symbol, **self._random.choice(values.ATTRIBUTES)}
        if dice < 0.15:
            message.pop("data")
        elif dice < 0.25:
            message["data"] = self._random.choice(values.DATA)
        if self._random.random() < 0.4:
            message["ordering_key"] = self._random.choice(("a", "b", "ключ"))
        return message

    def _ordered(self, name: str) -> bool:
        return bool(self._subscriptions.get(name, {}).get("enable_message_ordering"))

    def _take(self) -> None:
        name = self._subscription()
        if self._ordered(name):  # which of a key's messages are out at one time is not promised
            self._do("Drain", subscription=name, nack=self._some_messages())
        elif self._random.random() < 0.05:
            self._do("Pull", subscription=name, max_messages=self._random.choice((0, -1)))
        else:
            self._do("Take", subscription=name)

    def _some_messages(self) -> list[str]:
        known = self._messages.get("", [])
        return self._random.sample(known, min(len(known), self._random.choice((0, 0, 1, 2))))

    def _stream(self) -> None:
        name = self._subscription()
        if self._ordered(name):
            self._do("Drain", subscription=name)
            return
        seconds = self._random.choice((60, 60, 60, 600, 10, 0, 9, 601))
        more = {"ack": True} if self._random.random() < 0.5 else {}
        self._do("Stream", False, subscription=name, stream_ack_deadline_seconds=seconds, **more)

    def _drain(self) -> None:
        self._do("Drain", subscription=self._subscription(), nack=self._some_messages())

    def _exhaust(self) -> None:
        with_policy = [name for name, config in self._subscriptions.items() if "dead_letter_policy" in config]
        names = [name for name in with_policy if not self._ordered(name)]
        if names:
            self._do("Exhaust", subscription=self._random.choice(names))

    def _settle(self) -> None:
        name = self._subscription()
        known = self._messages.get("", [])
        chosen: dict[str, Any] = {"messages": self._random.sample(known, min(len(known), self._random.randrange(1, 6)))}
        dice = self._random.random()
        if dice < 0.05:
            chosen = {"ack_ids": self._random.choice(values.BAD_ACK_IDS)}
        elif dice < 0.12:
            chosen["late"] = True
        elif dice < 0.17:
            chosen["of"] = self._subscription()
        if self._random.random() < 0.5:
            self._do("Acknowledge", subscription=name, **chosen)
        else:
            seconds = self._random.choice((0, 0, 0, 0, 60, 600, 10, 1, -1, 601))
            self._do("ModifyAckDeadline", subscription=name, ack_deadline_seconds=seconds, **chosen)

    # Time.

    def _mark(self) -> None:
        self._do("Mark", False, mark=f"k{self._mark_count}")
        self._mark_count += 1

    def _seek(self) -> None:
        name, dice = self._subscription(), self._random.random()
        if dice < 0.4 and self._snapshots:
            self._do("Seek", subscription=name, snapshot=self._snapshot())
        elif dice < 0.7 and self._mark_count:
            self._do("Seek", subscription=name, time=f"{{k{self._random.randrange(self._mark_count)}}}")
        elif dice < 0.97:
            self._do("Seek", subscription=name, time=self._random.choice(values.TIMES))
        else:
            self._do("Seek", False, subscription=name)

    def _create_snapshot(self) -> None:
        name = self._new_name("snapshots", "snap")
        labels = values.pick(self._random, {"labels": values.LABELS})
        self._do("CreateSnapshot", name=name, subscription=self._subscription(), **labels)
        if name not in self._snapshots:
            self._snapshots.append(name)

    def _snapshot_call(self) -> None:
        name = self._snapshot()
        do = self._random.choice(("GetSnapshot", "GetSnapshot", "UpdateSnapshot", "DeleteSnapshot"))
        if do == "UpdateSnapshot":
            snapshot = {"name": name, **values.pick(self._random, {"labels": values.LABELS})}
            self._do(do, snapshot=snapshot, update_mask=self._mask(["labels"], values.SNAPSHOT_MASKS))
        else:
            self._do(do, snapshot=name)

    # Schemas.

    def _schema(self) -> None:
        kinds = (self._create_schema, self._schema_call, self._commit, self._validate, self._old_revision)
        self._random.choice(kinds)()

    def _definition(self, kind: str) -> dict[str, str]:
        return {"type": kind, "definition": self._random.choice(values.DEFINITIONS[kind])}

    def _create_schema(self) -> None:
        name = f"schema{self._random.randrange(3)}" if self._random.random() < 0.95 else "1-bad"
        kind = self._random.choice([*values.DEFINITIONS])
        self._do("CreateSchema", parent="{P}", schema_id=name, schema=self._definition(kind))
        self._schemas.setdefault(f"{{P}}/schemas/{name}", kind)
        self._revision_count += 1

    def _schema_call(self) -> None:
        name = self._schema_name()
        do = self._random.choice(("GetSchema", "ListSchemaRevisions", "ListSchemas", "DeleteSchema"))
        view = self._random.choice(({}, {"view": "BASIC"}, {"view": "FULL"}))
        match do:
            case "ListSchemas":
                self._do(do, parent="{P}", **view)
            case "DeleteSchema":
                self._do(do, name=name)
                self._schemas.pop(name, None)
            case "ListSchemaRevisions":
                self._do(do, False, name=name, **view)  # over REST the emulator never answers
            case _:
                self._do(do, name=name, **view)

    def _commit(self) -> None:
        name = self._schema_name()
        kind = self._schemas.get(name, "AVRO") if self._random.random() < 0.95 else "AVRO"
        self._do("CommitSchema", name=name, schema={"name": name, **self._definition(kind)})
        self._revision_count += 1

    def _old_revision(self) -> None:
        revision = f"{{r{self._random.randrange(self._revision_count)}}}" if self._revision_count else "12345678"
        name = self._schema_name()
        match self._random.randrange(3):
            case 0:
                self._do("RollbackSchema", name=name, revision_id=revision)
                self._revision_count += 1
            case 1:
                self._do("DeleteSchemaRevision", name=f"{name}@{revision}")
            case _:
                self._do("GetSchema", name=f"{name}@{revision}")

    def _validate(self) -> None:
        kind = self._random.choice([*values.DEFINITIONS])
        if self._random.random() < 0.5:
            self._do("ValidateSchema", parent="{P}", schema=self._definition(kind))
            return
        of = {"name": self._schema_name()} if self._random.random() < 0.5 else {"schema": self._definition(kind)}
        message = self._random.choice(values.SCHEMA_MESSAGES)
        self._do("ValidateMessage", parent="{P}", message=message, encoding=self._random.choice(values.ENCODINGS), **of)

    # Policies.

    def _policy(self) -> None:
        resource = self._random.choice((self._topic(), self._subscription(), self._snapshot(), self._schema_name()))
        match self._random.randrange(3):
            case 0:
                self._do("GetIamPolicy", resource=resource)
            case 1:
                bindings = [{"role": "roles/pubsub.viewer", "members": ["user:a@example.com"]}]
                self._do("SetIamPolicy", resource=resource, policy={"bindings": bindings})
            case _:
                permissions = ["pubsub.topics.get", "pubsub.topics.publish"]
                self._do("TestIamPermissions", resource=resource, permissions=permissions)
