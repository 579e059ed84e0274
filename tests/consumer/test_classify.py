"""What each exception means for the message."""

from __future__ import annotations

import email.message
import http.client
import io
import sqlite3
import ssl
import urllib.error
from typing import Any

import aiohttp
import asyncpg
import httpx
import psycopg
import pytest
import requests
from google.api_core import exceptions as google_exceptions
from google.auth import exceptions as auth_exceptions
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from holdfast.consumer.classify import Verdict, classify
from holdfast.errors import BadInput, Misconfigured, NotFound, Poison, StorageUnavailable, Transient
from holdfast.model.outcome import Poisoned, Retry

UNCLASSIFIED = "UNCLASSIFIED_ERROR"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Poison("bad", reason="R"), Verdict(Poisoned("R", "bad", readable=True))),
        (Poison("bad", readable=False), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "bad", readable=False))),
        (BadInput("f", "why"), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "f: why", readable=True))),
        (Transient("later", retry_after=3), Verdict(Retry("later", retry_after=3))),
        (Transient("later", reason="TILL_IS_SHUT"), Verdict(Retry("later", reason="TILL_IS_SHUT"))),
        (Transient("later", reason=5), Verdict(Retry("later"))),  # type: ignore[arg-type]
        (Misconfigured("no key"), Verdict(Retry("no key", misconfigured=True, reason="MISCONFIGURED"))),
        (PermissionError("denied"), Verdict(Retry("denied", misconfigured=True, reason="MISCONFIGURED"))),
        (StorageUnavailable("down"), Verdict(Retry("down", reason="DATABASE_CONNECTION_ERROR"))),
        (TimeoutError(), Verdict(Retry("TimeoutError"))),
        (ConnectionResetError("gone"), Verdict(Retry("gone"))),
        (OSError("disk"), Verdict(Retry("disk"))),
        (KeyError("x"), Verdict(Retry("'x'", reason=UNCLASSIFIED), classified=False)),
        (NotFound("x"), Verdict(Retry("x", reason=UNCLASSIFIED), classified=False)),
        (RecursionError(), Verdict(Retry("RecursionError", reason=UNCLASSIFIED), classified=False)),
    ],
)
def test_the_table(error: Exception, verdict: Verdict) -> None:
    assert classify(error) == verdict


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class WithNoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307 - as somebody else may


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (WithoutText(), Verdict(Retry("WithoutText", reason=UNCLASSIFIED), classified=False)),
        (WithNoText(), Verdict(Retry("WithNoText", reason=UNCLASSIFIED), classified=False)),
        (ValueError("half \ud800"), Verdict(Retry("half ?", reason=UNCLASSIFIED), classified=False)),
        (Poison("p\ud800", reason="R\udfff"), Verdict(Poisoned("R?", "p?", readable=True))),
        (Poison("p", reason=""), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "p", readable=True))),
        (Poison("p", reason=404), Verdict(Poisoned("SCHEMA_VALIDATION_ERROR", "p", readable=True))),  # type: ignore[arg-type]
    ],
)
def test_an_exception_whose_text_or_reason_is_none_has_a_verdict_like_any_other(
    error: Exception, verdict: Verdict
) -> None:
    assert classify(error) == verdict


def aiohttp_error(status: int) -> aiohttp.ClientResponseError:
    info = aiohttp.RequestInfo(URL("http://x/"), "GET", CIMultiDictProxy(CIMultiDict()), URL("http://x/"))
    return aiohttp.ClientResponseError(info, (), status=status, message="text")


def httpx_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://x/")
    return httpx.HTTPStatusError("text", request=request, response=httpx.Response(status, request=request))


def requests_error(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("text", response=response)


def urllib_error(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://x/", status, "text", email.message.Message(), io.BytesIO())


HTTP_ERRORS = (aiohttp_error, httpx_error, requests_error, urllib_error)

google: Any = google_exceptions  # neither has types
auth: Any = auth_exceptions

TRANSIENT = [
    google.ServiceUnavailable("text"),
    google.DeadlineExceeded("text"),
    google.ResourceExhausted("text"),
    google.Aborted("text"),
    google.InternalServerError("text"),
    google.RetryError("text", None),
    psycopg.OperationalError("text"),
    psycopg.errors.SerializationFailure("text"),
    psycopg.errors.AdminShutdown("text"),
    sqlite3.OperationalError("text"),
    aiohttp.ServerDisconnectedError("text"),
    aiohttp.ClientPayloadError("text"),
    httpx.ConnectTimeout("text"),
    httpx.RemoteProtocolError("text"),
    httpx.StreamClosed(),
    requests.ConnectionError("text"),
    requests.ReadTimeout("text"),
    asyncpg.PostgresConnectionError("text"),
    asyncpg.CannotConnectNowError("text"),
    asyncpg.SerializationError("text"),
    asyncpg.DeadlockDetectedError("text"),
    asyncpg.TooManyConnectionsError("text"),
    asyncpg.InterfaceError("text"),
    urllib.error.URLError("text"),
    http.client.RemoteDisconnected("text"),
    *(error(status) for error in HTTP_ERRORS for status in (408, 429, 500, 503, 599)),
]
MISCONFIGURED = [
    google.PermissionDenied("text"),
    google.Unauthenticated("text"),
    google.Forbidden("text"),
    auth.DefaultCredentialsError("text"),
    psycopg.errors.InsufficientPrivilege("text"),
    psycopg.errors.InvalidPassword("text"),
    psycopg.errors.UndefinedTable("text"),
    asyncpg.InsufficientPrivilegeError("text"),
    asyncpg.InvalidPasswordError("text"),
    asyncpg.UndefinedTableError("text"),
    httpx.UnsupportedProtocol("text"),
    requests.exceptions.InvalidURL("text"),
    requests.exceptions.SSLError("text"),
    ssl.SSLCertVerificationError("text"),
    *(error(status) for error in HTTP_ERRORS for status in (401, 403, 404)),
]
POISON = [
    google.InvalidArgument("text"),
    google.OutOfRange("text"),
    psycopg.errors.UniqueViolation("text"),
    psycopg.errors.NumericValueOutOfRange("text"),
    sqlite3.IntegrityError("text"),
    asyncpg.DataError("text"),
    asyncpg.UniqueViolationError("text"),
    *(error(status) for error in HTTP_ERRORS for status in (400, 413, 422)),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_what_libraries_call_not_now(error: Exception) -> None:
    outcome, classified = classify(error)
    assert isinstance(outcome, Retry)
    assert (outcome.misconfigured, classified) == (False, True)


@pytest.mark.parametrize("error", MISCONFIGURED, ids=repr)
def test_what_libraries_say_that_an_operator_must_mend(error: Exception) -> None:
    outcome, classified = classify(error)
    assert isinstance(outcome, Retry)
    assert (outcome.misconfigured, classified) == (True, True)


@pytest.mark.parametrize("error", POISON, ids=repr)
def test_what_libraries_refuse_for_good(error: Exception) -> None:
    outcome, classified = classify(error)
    assert isinstance(outcome, Poisoned)
    assert (outcome.reason, outcome.readable, classified) == ("REFUSED_BY_DEPENDENCY", True, True)


# The category of what may pass.


def kafka_error(module: str, name: str) -> Exception:
    """As these packages name theirs: they need not be here to be known."""
    kind: type[Exception] = type(name, (RuntimeError,), {"__module__": module})
    return kind("text")


class KafkaError:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


def confluent_error(name: str) -> Exception:
    kind: type[Exception] = type("KafkaException", (Exception,), {"__module__": "cimpl"})
    return kind(KafkaError(name))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (psycopg.OperationalError("text"), "DATABASE_CONNECTION_ERROR"),
        (asyncpg.TooManyConnectionsError("text"), "DATABASE_CONNECTION_ERROR"),
        (sqlite3.OperationalError("text"), "DATABASE_CONNECTION_ERROR"),
        (google.ResourceExhausted("text"), "API_RATE_LIMIT_EXCEEDED"),
        (google.TooManyRequests("text"), "API_RATE_LIMIT_EXCEEDED"),
        *((error(429), "API_RATE_LIMIT_EXCEEDED") for error in HTTP_ERRORS),
        *((error(503), "TRANSIENT_ERROR") for error in HTTP_ERRORS),
        *((error(403), "MISCONFIGURED") for error in HTTP_ERRORS),
        (google.ServiceUnavailable("text"), "TRANSIENT_ERROR"),
        (psycopg.errors.UndefinedTable("text"), "MISCONFIGURED"),
        (kafka_error("aiokafka.errors", "KafkaConnectionError"), "KAFKA_BROKER_UNAVAILABLE"),
        (kafka_error("kafka.errors", "NoBrokersAvailable"), "KAFKA_BROKER_UNAVAILABLE"),
        (confluent_error("_ALL_BROKERS_DOWN"), "KAFKA_BROKER_UNAVAILABLE"),
        (confluent_error("TOPIC_AUTHORIZATION_FAILED"), "UNCLASSIFIED_ERROR"),
        (type("KafkaException", (Exception,), {"__module__": "cimpl"})(), "UNCLASSIFIED_ERROR"),
    ],
)
def test_what_may_pass_has_a_category(error: Exception, reason: str) -> None:
    outcome, _ = classify(error)
    assert isinstance(outcome, Retry)
    assert outcome.reason == reason
