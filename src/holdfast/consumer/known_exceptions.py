"""What the exceptions of libraries mean, by their names: a consumer need not have any of these libraries.

A name is module and class; an exception counts as the first of its own class and its bases that is listed. HTTP errors
are told by their status.
"""

from __future__ import annotations

from enum import Enum, auto


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

_TRANSIENT = (
    *(_GOOGLE + name for name in ("ServerError", "TooManyRequests", "Aborted", "Cancelled", "Unknown", "RetryError")),
    _AUTH + "TransportError",
    # A server that is away, is stopping, has too many connections, or chose another of two that met.
    "psycopg.OperationalError",
    "psycopg.InterfaceError",
    "psycopg_pool.PoolTimeout",
    "psycopg_pool.PoolClosed",
    _ASYNCPG + "InterfaceError",
    *(_ASYNCPG_SERVER + name for name in ("PostgresConnectionError", "TransactionRollbackError")),
    *(_ASYNCPG_SERVER + name for name in ("InsufficientResourcesError", "OperatorInterventionError")),
    "sqlite3.OperationalError",
    "sqlite3.InterfaceError",
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

_MEANINGS = {
    **dict.fromkeys(_TRANSIENT, Meaning.TRANSIENT),
    **dict.fromkeys(_MISCONFIGURED, Meaning.MISCONFIGURED),
    **dict.fromkeys(_POISON, Meaning.POISON),
}

# Where an HTTP error keeps its status.
_BY_STATUS = {
    _AIOHTTP + "ClientResponseError": ("status",),
    _HTTPX + "HTTPStatusError": ("response", "status_code"),
    "requests.exceptions.HTTPError": ("response", "status_code"),
    "urllib.error.HTTPError": ("code",),
}

# Client errors that time may mend.
_TRANSIENT_STATUSES = frozenset({408, 409, 421, 423, 425, 429})
_MISCONFIGURED_STATUSES = frozenset({401, 403, 404, 405, 407})


def meaning_of(error: BaseException) -> Meaning | None:
    """None for one that is not known."""
    for kind in type(error).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _BY_STATUS:
            return _by_status(error, _BY_STATUS[name])
        if name in _MEANINGS:
            return _MEANINGS[name]
    return None


def _by_status(error: BaseException, where: tuple[str, ...]) -> Meaning | None:
    status: object = error
    for attribute in where:
        status = getattr(status, attribute, None)
    if not isinstance(status, int):
        return Meaning.TRANSIENT
    if status in _TRANSIENT_STATUSES or status >= 500 or status < 400:
        return Meaning.TRANSIENT
    return Meaning.MISCONFIGURED if status in _MISCONFIGURED_STATUSES else Meaning.POISON
