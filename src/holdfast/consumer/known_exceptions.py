"""What the exceptions of libraries mean, by their names: a consumer need not have any of these libraries.

A name is module and class; an exception counts as the first of its own class and its bases that is listed. HTTP errors
are told by their status.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from holdfast.model.failure_reasons import (
    API_RATE_LIMIT_EXCEEDED,
    DATABASE_CONNECTION_ERROR,
    KAFKA_BROKER_UNAVAILABLE,
    MISCONFIGURED,
    TRANSIENT_ERROR,
)


class Meaning(Enum):
    TRANSIENT = auto()
    MISCONFIGURED = auto()
    POISON = auto()


_GOOGLE = "google.api_core.exceptions."
_AUTH = "google.auth.exceptions."
_PSYCOPG = "psycopg.errors."
_ASYNCPG = "asyncpg.exceptions._base."
_ASYNCPG_SERVER = "asyncpg.exceptions."
_AIOHTTP = "aiohttp.client_exceptions."
_HTTPX = "httpx."

_KAFKA_PACKAGES = ("aiokafka.errors.", "kafka.errors.")

# A server that is away, is stopping, has too many connections, or chose another of two that met.
_DATABASE_IS_AWAY = (
    "psycopg.OperationalError",
    "psycopg.InterfaceError",
    "psycopg_pool.PoolTimeout",
    "psycopg_pool.PoolClosed",
    _ASYNCPG + "InterfaceError",
    *(_ASYNCPG_SERVER + name for name in ("PostgresConnectionError", "TransactionRollbackError")),
    *(_ASYNCPG_SERVER + name for name in ("InsufficientResourcesError", "OperatorInterventionError")),
    "sqlite3.OperationalError",
    "sqlite3.InterfaceError",
)

_RATE_LIMIT = (_GOOGLE + "TooManyRequests",)  # ResourceExhausted is a kind of it

_KAFKA_IS_AWAY = (
    "KafkaConnectionError",
    "KafkaTimeoutError",
    "NoBrokersAvailable",
    "NodeNotReadyError",
    "BrokerNotAvailableError",
    "LeaderNotAvailableError",
    "NotLeaderForPartitionError",
    "RequestTimedOutError",
    "CoordinatorNotAvailableError",
    "GroupCoordinatorNotAvailableError",
    "NetworkExceptionError",
)

_TRANSIENT = (
    *(_GOOGLE + name for name in ("ServerError", "Aborted", "Cancelled", "Unknown", "RetryError")),
    _AUTH + "TransportError",
    _AIOHTTP + "ClientConnectionError",
    _AIOHTTP + "ClientPayloadError",
    _HTTPX + "TransportError",
    _HTTPX + "StreamError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    "urllib.error.URLError",
    "http.client.HTTPException",
    "ssl.SSLError",
    "socket.gaierror",
)

_MISCONFIGURED = (
    *(_GOOGLE + name for name in ("Forbidden", "PermissionDenied", "Unauthorized", "Unauthenticated")),
    _GOOGLE + "FailedPrecondition",  # an index that is missing, a database that is disabled
    *(_AUTH + name for name in ("DefaultCredentialsError", "RefreshError", "MalformedError")),
    *(_PSYCOPG + name for name in ("InsufficientPrivilege", "InvalidPassword", "InvalidAuthorizationSpecification")),
    *(_PSYCOPG + name for name in ("UndefinedTable", "UndefinedColumn", "InvalidCatalogName", "InvalidSchemaName")),
    *(_ASYNCPG_SERVER + name for name in ("InsufficientPrivilegeError", "InvalidAuthorizationSpecificationError")),
    *(_ASYNCPG_SERVER + name for name in ("UndefinedTableError", "UndefinedColumnError", "InvalidCatalogNameError")),
    "ssl.SSLCertVerificationError",
    _AIOHTTP + "ClientConnectorCertificateError",
    _AIOHTTP + "InvalidURL",
    _HTTPX + "InvalidURL",
    _HTTPX + "UnsupportedProtocol",
    "requests.exceptions.InvalidURL",
    "requests.exceptions.SSLError",
)

_POISON = (
    _GOOGLE + "BadRequest",  # InvalidArgument and OutOfRange are kinds of it
    "psycopg.DataError",
    "psycopg.IntegrityError",
    _ASYNCPG_SERVER + "DataError",
    _ASYNCPG_SERVER + "IntegrityConstraintViolationError",
    "sqlite3.DataError",
    "sqlite3.IntegrityError",
)


class Known(NamedTuple):
    """`reason` is the failure category of what is tried again."""

    meaning: Meaning
    reason: str = ""


_IS_TRANSIENT = Known(Meaning.TRANSIENT, TRANSIENT_ERROR)
_IS_RATE_LIMIT = Known(Meaning.TRANSIENT, API_RATE_LIMIT_EXCEEDED)
_IS_KAFKA = Known(Meaning.TRANSIENT, KAFKA_BROKER_UNAVAILABLE)
_IS_MISCONFIGURED = Known(Meaning.MISCONFIGURED, MISCONFIGURED)
_IS_POISON = Known(Meaning.POISON)

_KNOWN = {
    **dict.fromkeys(_DATABASE_IS_AWAY, Known(Meaning.TRANSIENT, DATABASE_CONNECTION_ERROR)),
    **dict.fromkeys(_RATE_LIMIT, _IS_RATE_LIMIT),
    **dict.fromkeys([package + name for package in _KAFKA_PACKAGES for name in _KAFKA_IS_AWAY], _IS_KAFKA),
    **dict.fromkeys(_TRANSIENT, _IS_TRANSIENT),
    **dict.fromkeys(_MISCONFIGURED, _IS_MISCONFIGURED),
    **dict.fromkeys(_POISON, _IS_POISON),
}

# Where an HTTP error keeps its status.
_BY_STATUS = {
    _AIOHTTP + "ClientResponseError": ("status",),
    _HTTPX + "HTTPStatusError": ("response", "status_code"),
    "requests.exceptions.HTTPError": ("response", "status_code"),
    "urllib.error.HTTPError": ("code",),
}

# Client errors that time may mend.
_TOO_MANY_REQUESTS = 429
_TRANSIENT_STATUSES = frozenset({408, 409, 421, 423, 425, _TOO_MANY_REQUESTS})
_MISCONFIGURED_STATUSES = frozenset({401, 403, 404, 405, 407})


# confluent-kafka has one exception for everything; the error in it has a name.
_CONFLUENT = "cimpl.KafkaException"
_CONFLUENT_IS_AWAY = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_TRANSPORT",
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_RESOLVE",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "COORDINATOR_NOT_AVAILABLE",
    }
)


def known(error: BaseException) -> Known | None:
    """None for one that is not."""
    for kind in type(error).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _BY_STATUS:
            return _by_status(error, _BY_STATUS[name])
        if name == _CONFLUENT:
            return _IS_KAFKA if _confluent_name(error) in _CONFLUENT_IS_AWAY else None
        if name in _KNOWN:
            return _KNOWN[name]
    return None


def _by_status(error: BaseException, where: tuple[str, ...]) -> Known:
    status: object = error
    for attribute in where:
        status = getattr(status, attribute, None)
    if status == _TOO_MANY_REQUESTS:
        return _IS_RATE_LIMIT
    if not isinstance(status, int) or status in _TRANSIENT_STATUSES or status >= 500 or status < 400:
        return _IS_TRANSIENT
    return _IS_MISCONFIGURED if status in _MISCONFIGURED_STATUSES else _IS_POISON


def _confluent_name(error: BaseException) -> object:
    name = getattr(error.args[0] if error.args else None, "name", None)
    return name() if callable(name) else None
