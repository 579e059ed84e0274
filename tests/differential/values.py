"""What requests are made of: good values, the edges, and wrong ones."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from typing import Any

# How often a field that may be left out is left out, and how often a value is a wrong one.
LEFT_OUT = 0.8
WRONG = 0.06


class Choice:
    """Good values and wrong ones."""

    def __init__(self, *good: Any, wrong: Sequence[Any] = ()) -> None:
        self.good = good
        self.wrong = wrong

    def pick(self, random: random.Random) -> Any:
        return random.choice(self.wrong if self.wrong and random.random() < WRONG else self.good)


def pick(random: random.Random, fields: Mapping[str, Choice]) -> dict[str, Any]:
    return {name: choice.pick(random) for name, choice in fields.items() if random.random() > LEFT_OUT}


BAD_NAMES = (
    "",
    "nothing",
    "projects/",
    "{P}/KIND",
    "{P}/KIND/",
    "{P}/KIND/ab",
    "{P}/KIND/1abc",
    "{P}/KIND/google",
    "{P}/KIND/with space",
    "{P}/KIND/with/slash",
    "{P}/other/abcd",
    "{P}/KIND/" + "n" * 256,
    "projects//KIND/abcd",
    "{P}/KIND/umläut",
)

LABELS = Choice(
    {"team": "blue"},
    {"team": "red", "tier": "1"},
    {"empty": ""},
    {},
    wrong=(
        {"Upper": "x"},
        {"ok": "Upper"},
        {"": "x"},
        {"k" * 64: "x"},
        {"ok": "v" * 64},
        {"1digit": "x"},
        {"a.b": "x"},
    ),
)

TOPIC = {
    "labels": LABELS,
    "message_retention_duration": Choice(
        "600s", "604800s", "2678400s", "601.5s", wrong=("599s", "2678401s", "0s", "-1s")
    ),
}
TOPIC_MASKS = [
    "labels",
    "name",
    "bogus",
    "kms_key_name",
    "schema_settings",
    "message_storage_policy",
    "labels.team",
    "",
]

PUSH: Sequence[dict[str, Any]] = (
    {"push_endpoint": "http://127.0.0.1:9/push"},
    {"push_endpoint": "http://127.0.0.1:9/push", "attributes": {"x-goog-version": "v1"}},
    {"push_endpoint": "http://127.0.0.1:9/push", "no_wrapper": {"write_metadata": True}},
    {"push_endpoint": "http://127.0.0.1:9/push", "oidc_token": {"service_account_email": "a@example.com"}},
)
BAD_PUSH = (
    {"push_endpoint": "not a url"},
    {"push_endpoint": "ftp://127.0.0.1/x"},
    {"push_endpoint": "http://127.0.0.1:9/push", "attributes": {"bogus": "1"}},
    {"push_endpoint": "http://127.0.0.1:9/push", "attributes": {"x-goog-version": "v7"}},
)

FILTERS = (
    'attributes.color = "red"',
    'attributes.color != "red"',
    "attributes:color",
    "NOT attributes:color",
    'hasPrefix(attributes.color, "r")',
    'attributes:color AND attributes.n != "m1"',
    '(attributes.color = "red" OR attributes.color = "blue") AND NOT attributes:size',
    'attributes."color" = "red"',
)
BAD_FILTERS = (
    "color",
    "attributes.color = red",
    "attributes.color > 1",
    'data = "x"',
    "attributes:a AND attributes:b OR attributes:c",
    'attributes.color = "red" AND',
    "attributes." + "k" * 260 + ' = "x"',
    'hasSuffix(attributes.color, "r")',
    "(",
)

SUBSCRIPTION = {
    "labels": LABELS,
    # 10 is the default and the smallest; it is short beside a sequence on a busy machine, but long enough.
    "ack_deadline_seconds": Choice(30, 60, 600, 10, 0, wrong=(9, 601, -1, 1)),
    "message_retention_duration": Choice(
        "600s", "604800s", "86400s", "2678400s", wrong=("599s", "2678401s", "0s", "-600s")
    ),
    "retain_acked_messages": Choice(True, True, False),
    "enable_message_ordering": Choice(True, False),
    "enable_exactly_once_delivery": Choice(True, False),
    "filter": Choice(*FILTERS, "", wrong=BAD_FILTERS),
    "expiration_policy": Choice(
        {}, {"ttl": "86400s"}, {"ttl": "2678400s"}, wrong=({"ttl": "3600s"}, {"ttl": "-1s"}, {"ttl": "0s"})
    ),
    "retry_policy": Choice(
        {},
        {"minimum_backoff": "0s", "maximum_backoff": "0s"},
        {"minimum_backoff": "10s"},
        {"minimum_backoff": "20s", "maximum_backoff": "600s"},
        {"maximum_backoff": "30s"},
        wrong=(
            {"minimum_backoff": "30s", "maximum_backoff": "20s"},
            {"minimum_backoff": "601s"},
            {"maximum_backoff": "601s"},
            {"minimum_backoff": "-1s"},
            {"maximum_backoff": "5s"},
        ),
    ),
    "push_config": Choice({}, {}, {}, *PUSH, wrong=BAD_PUSH),
}
# The emulator does not know the first two either.
SUBSCRIPTION_MASKS = [
    "labels",
    "expiration_policy",
    "name",
    "topic",
    "filter",
    "enable_message_ordering",
    "bogus",
    "detached",
    "state",
    "",
    "dead_letter_policy.max_delivery_attempts",
    "expiration_policy.ttl",
    "retry_policy.minimum_backoff",
    "labels.team",
    "topic_message_retention_duration",
]
SNAPSHOT_MASKS = ["name", "topic", "expire_time", "bogus", ""]

DATA = ("", "ä", "<&>", '{"a": 1}', "x" * 2000)
ATTRIBUTES: Sequence[dict[str, Any]] = (
    {"color": "red"},
    {"color": "blue"},
    {"color": "red", "size": "1"},
    {"color": ""},
    {"size": "2"},
    {},
)
BAD_MESSAGES: Sequence[dict[str, Any]] = (
    {},
    {"ordering_key": "a"},
    {"data": "x", "attributes": {"": "empty key"}},
    {"data": "x", "attributes": {"googly": "x"}},
    {"data": "x", "attributes": {"k" * 257: "x"}},
    {"data": "x", "attributes": {"long": 1025}},
    {"data": "x", "attributes": {f"k{number}": "x" for number in range(101)}},
    {"data": "x", "ordering_key": "k" * 1025},
    {"size": 10_000_001},
)

BAD_ACK_IDS: Sequence[list[str]] = ([], ["garbage"], ["garbage", "more"], [""])

TIMES = ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "1970-01-01T00:00:00Z")

ENCODINGS = ("JSON", "JSON", "BINARY", "ENCODING_UNSPECIFIED")

_AVRO = '{"type": "record", "name": "Order", "fields": [%s]}'
_NUMBER = '{"name": "number", "type": "int"}'
_STATE = '{"name": "state", "type": "string", "default": ""}'
_PROTO = 'syntax = "proto3"; message Order { %s }'
DEFINITIONS = {
    "AVRO": (
        _AVRO % _NUMBER,
        _AVRO % f"{_NUMBER}, {_STATE}",
        _AVRO % f"{_NUMBER}, {_STATE}, {_STATE.replace('state', 'more')}",
        _AVRO % _STATE,
        "{",
        '{"type": "nothing"}',
        "",
    ),
    "PROTOCOL_BUFFER": (
        _PROTO % "int32 number = 1;",
        _PROTO % "int32 number = 1; string state = 2;",
        _PROTO % "string number = 1;",
        "message {",
        'syntax = "proto3";',
        _PROTO % "int32 number = 1;" + " message Second { int32 x = 1; }",
    ),
}


def _encoded(*texts: str) -> list[str]:
    return [base64.b64encode(text.encode()).decode() for text in texts]


SCHEMA_MESSAGES = _encoded(
    '{"number": 1}',
    '{"number": 1, "state": "paid"}',
    '{"number": "one"}',
    "{}",
    "",
    "\x02",
    "\x08\x01",
    '{"unknown": 1}',
    '{"state": "paid"}',
)
