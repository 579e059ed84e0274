"""Failures with one cause are one group, whatever ids and values their errors hold; different causes never are."""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deadletter.fingerprints import LONGEST_TEXT, example_of, fingerprint, in_group, normalised
from holdfast.model.failed_message import FailedMessage
from holdfast.testing.contracts.failures import a_failure

# What fills the gaps of an error text, as real systems do.

FILLS: Mapping[str, Callable[[random.Random], str]] = {
    "number": lambda r: str(r.randint(-(10 ** r.randint(1, 9)), 10 ** r.randint(1, 12))),
    "decimal": lambda r: f"{r.uniform(-500, 500):.{r.randint(1, 7)}f}",
    "uuid": lambda r: str(uuid.UUID(int=r.getrandbits(128))),
    "hex": lambda r: f"{r.getrandbits(4 * r.randint(7, 40)):x}".rjust(8, "0"),
    "pointer": lambda r: hex(r.getrandbits(48)),
    "word": lambda r: "".join(r.choices(string.ascii_letters + " -_.", k=r.randint(1, 30))),
    "name": lambda r: "".join(r.choices(string.ascii_lowercase, k=r.randint(3, 12))),
    "time": lambda r: r.choice(["2026-11-18T19:03:11.1234Z", "2026-01-02 03:04:05", "2025-12-31T23:59:59+02:00"]),
    "email": lambda r: f"{''.join(r.choices(string.ascii_lowercase, k=5))}.x@mail-{r.randint(1, 9)}.example.com",
    "ip": lambda r: ".".join(str(r.randint(0, 255)) for _ in range(4)),
    "port": lambda r: str(r.randint(32768, 60999)),
    "duration": lambda r: r.choice(["5s", "1.503s", "250ms", "1m30s", "17.25µs", "2h0m5s", "30 seconds"]),
    "line": lambda r: str(r.randint(1, 9999)),
}


def filled(template: str, chance: random.Random) -> str:
    return template.format_map({name: fill(chance) for name, fill in FILLS.items()})


TRACEBACK = 'Traceback (most recent call last):\n  File "/app/shop.py", line {line}, in handle\n'

# Of one system: a reason and an error text.
SYSTEMS: Mapping[str, list[tuple[str, str]]] = {
    "wildfire": [
        ("SCHEMA_VALIDATION_ERROR", "Field 'latitude' value {decimal} exceeds valid range [-90, 90]"),
        ("API_RATE_LIMIT_EXCEEDED", "NASA FIRMS API returned 429 Too Many Requests (limit: {number}/hour, at {time})"),
        ("DATABASE_CONNECTION_ERROR", 'psycopg2.OperationalError: connection to server at "{ip}", port 5432 failed'),
        ("DUPLICATE_MESSAGE", "Detection ID 'FIRMS_20250104_{number}' already exists in Redis cache"),
    ],
    "one reason, four causes": [
        ("DELIVERY_ATTEMPTS_EXHAUSTED", "last status 500: order {uuid} of customer {number} has no price"),
        ("DELIVERY_ATTEMPTS_EXHAUSTED", "last status 500: order {uuid} of customer {number} has no address"),
        ("DELIVERY_ATTEMPTS_EXHAUSTED", "last status 503: order {uuid} of customer {number} has no price"),
        ("DELIVERY_ATTEMPTS_EXHAUSTED", "last status timeout: no answer within {duration}"),
    ],
    "python": [
        ("A", TRACEBACK + "    pay(order)\nKeyError: 'total'"),
        ("A", TRACEBACK + "KeyError: 'customer'"),
        ("A", "ValueError: could not convert string to float: '{word}'"),
        ("A", "ConnectionRefusedError: [Errno 111] Connect call failed ('{ip}', 5432)"),
    ],
    "jvm": [
        ("A", "java.lang.NullPointerException: order {number} is new\n\tat com.shop.Pay.run(Pay.java:{line})\n"),
        ("A", "java.lang.IllegalStateException: order {number} is new\n\tat com.shop.Pay.run(Pay.java:{line})"),
        ("A", "ORA-00942: table or view does not exist ({hex})"),
        ("A", "ORA-00001: unique constraint violated for {hex} ({email})"),
    ],
    "go": [
        ("A", "read tcp {ip}:{port}->{ip}:5432: read: connection reset by peer"),
        ("A", "dial tcp {ip}:6379: connect: connection refused after {duration}"),
        ("A", "dial tcp {ip}:5432: connect: connection refused after {duration}"),
        ("A", "panic: index out of range [{number}] with length 3\n\ngoroutine {line} [running]:\nmain.f({pointer})"),
    ],
    "javascript": [
        ("A", "TypeError: Cannot read properties of undefined (reading 'total')\n    at pay (/app/{line}.js:{line}:5)"),
        ("A", "TypeError: Cannot read properties of undefined (reading 'customer')\n    at pay (/app/x.js:{line}:5)"),
        ("A", "Request to https://pay.example.com/v1/orders/{uuid}?token={hex} failed with status code 402"),
        ("A", "Request to https://pay.example.com/v1/orders/{uuid}?token={hex} failed with status code 404"),
    ],
    "databases": [
        ("A", 'duplicate key value violates unique constraint "orders_pkey" DETAIL: Key (id)=({number}) is there.'),
        ("A", 'duplicate key value violates unique constraint "mails_key" DETAIL: Key (mail)=({email}) is there.'),
        ("A", "SQLSTATE[40001]: could not serialize access, transaction {number} at {time}"),
        ("A", 'E11000 duplicate key error collection: shop.orders dup key: {{ _id: "{word}" }}'),
    ],
    "languages of people": [
        ("A", "Feld „{word}“ fehlt in Auftrag {number} vom 18.11.2026"),
        ("A", "Le champ « {word} » manque dans la commande {number}"),
        ("A", "注文 {number} の「{word}」がありません"),
        ("A", "Поле «{word}» отсутствует в заказе {number} ({email})"),
    ],
}


def failing(reason: str, error: str, subscription: str = "projects/p/subscriptions/s") -> FailedMessage:
    return a_failure("1", failure_reason=reason, error_details=error, subscription=subscription)


@pytest.mark.parametrize("system", SYSTEMS)
def test_5000_failures_from_4_causes_give_4_groups(system: str) -> None:
    chance = random.Random(system)
    causes = SYSTEMS[system]
    groups: dict[int, set[str]] = {cause: set() for cause in range(4)}
    for number in range(5000):
        reason, template = causes[number % 4]
        groups[number % 4].add(fingerprint(failing(reason, filled(template, chance))))
    assert {cause: len(found) for cause, found in groups.items()} == dict.fromkeys(range(4), 1)
    assert len(set.union(*groups.values())) == 4


DIFFERENT = [
    ("last status 500: boom", "last status 503: boom"),
    ("last status 422: amount: must be a number", "last status 422: total: must be a number"),
    ("Field 'latitude' is missing", "Field 'longitude' is missing"),
    ('column "email" does not exist', 'column "phone" does not exist'),
    ('relation "orders" does not exist', 'relation "customers" does not exist'),
    ("KeyError: 'total'", "KeyError: 'customer'"),
    ("KeyError: 'total'", "ValueError: 'total'"),
    ("'str' object has no attribute 'get'", "'str' object has no attribute 'items'"),
    ("SQLSTATE 40001", "SQLSTATE 23505"),
    ("ERROR 1062 (23000): Duplicate entry", "ERROR 1213 (40001): Deadlock found"),
    ("[Errno 111] failed", "[Errno 110] failed"),
    ("exit code 1", "exit code 137"),
    ("grpc code 14: no", "grpc code 4: no"),
    ("API returned 429", "API returned 500"),
    ("HTTP 502 from upstream", "HTTP 504 from upstream"),
    ("connect to localhost:5432 refused", "connect to localhost:6379 refused"),
    ("connect to 10.0.0.1:5432 refused", "connect to 10.0.0.1:6379 refused"),
    ("https://pay.example.com/v1 is down", "https://stock.example.com/v1 is down"),
    ("expected int32", "expected int64"),
    ("invalid utf-8", "invalid utf-16"),
    ("ORA-00942: no", "ORA-00001: no"),
    ('{"error": {"code": 404, "message": "gone"}}', '{"error": {"code": 403, "message": "gone"}}'),
    ('{"message": "order 17 was not found"}', '{"message": "order 17 was cancelled"}'),
    ("timeout", "refused"),
    ("", "boom"),
]

SAME = [
    ("order 17 is bad", "order   18\nis BAD"),
    ("sent to bob@example.com", "sent to eve.w+x@mail.example.org"),
    ("at 2026-11-18T19:03:11Z", "at 2025-01-02 03:04:05,123"),
    ("on Wed, 18 Nov 2026 19:03:11 GMT", "on Thu, 1 Jan 2026 00:00:00 GMT"),
    ("value 'a' is bad", "value 'it\\'s' is bad"),
    ("value 'a' is bad", "value 'a long one, with O'Brien in it' is bad"),
    ('value "a" is bad', 'value "" is bad'),
    ("cannot parse 'abc", "cannot parse 'something else that was cut"),
    ("items 1, 2, 3 failed", "items 17 failed"),
    ("took 250ms", "took 1m30.5s"),
    ("file /data/tenants/4711/77.json missing", "file /data/tenants/12/1.json missing"),
    ("file /tmp/tmpabc/x missing", "file /tmp/tmpqwe12/other missing"),
    ("GET /orders?id=1&x=2 failed", "GET /orders?id=abc failed"),
    ("document orders/Ab3dE5fGh1jKlMnOpQrS is gone", "document orders/zYxWvUtSrQpOnMlKjIhG is gone"),
    ("pod payments-7d9f8b6c5-x2x4z is gone", "pod payments-5b8c9d7f4-q8w7k is gone"),
    ("zip code 90210 is bad", "zip code 10115 is bad"),
    ("from fe80::1ff:fe23:4567:890a", "from 2001:db8:0:1:1:1:1:1"),
    ("12345678 is not a commit", "1234567a is not a commit"),
    ("at 0x7f3a2b", "at 0x1"),
    ("\u0664\u0662 items", "\u0667 items"),
    ("value 1e-9 is small", "value -17,500.25 is small"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_causes_are_different_groups(one: str, other: str) -> None:
    assert fingerprint(failing("A", one)) != fingerprint(failing("A", other))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_from_message_to_message_does_not_count(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert fingerprint(failing("A", one)) == fingerprint(failing("A", other))


def test_reason_and_route_count() -> None:
    failure = failing("A", "boom")
    assert fingerprint(replace(failure, failure_reason="B")) != fingerprint(failure)
    assert fingerprint(replace(failure, subscription="projects/p/subscriptions/t")) != fingerprint(failure)


def test_nothing_else_counts() -> None:
    other = a_failure(
        "2",
        failure_reason="A",
        error_details="boom",
        subscription="projects/p/subscriptions/s",
        data=b"other",
        attributes={"a": "b"},
        created_at_ns=5,
        retry_count=3,
    )
    assert fingerprint(other) == fingerprint(failing("A", "boom"))


def test_its_own_ids_do_not_count_even_where_they_look_like_words() -> None:
    failures = [a_failure(name, ordering_key=name, error_details=f"{name} has no price") for name in ("alice", "bob")]
    assert fingerprint(failures[0]) == fingerprint(failures[1])
    assert example_of(failures[0]) == "# has no price"


def test_it_is_the_same_over_versions_and_restarts() -> None:
    """Whoever changes this value begins all groups anew: then change VERSION too."""
    failure = failing("SCHEMA_VALIDATION_ERROR", "Field 'latitude' value 192.5847 exceeds valid range [-90, 90]")
    assert fingerprint(failure) == "3f8a9112b475df22"
    assert example_of(failure) == "field 'latitude' value # exceeds valid range [#]"


def test_a_failure_is_put_in_its_group() -> None:
    failure = failing("A", "boom")
    assert in_group(failure) == replace(failure, fingerprint=fingerprint(failure))


@given(st.text(st.characters(exclude_categories=[]), max_size=3000))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_fingerprint(text: str) -> None:
    assert len(normalised(text)) <= LONGEST_TEXT
    found = fingerprint(failing("A", text))
    assert len(found) == 16
    assert int(found, 16) >= 0


@pytest.mark.parametrize("piece", ["'", '"\\', "1:", "a.b-", "x ", "«", "0:", "code", "at ", "1 ", "a@", "\n at"])
@pytest.mark.timeout(10)
def test_no_text_takes_long(piece: str) -> None:
    for _ in range(20):
        normalised(piece * 100_000)
