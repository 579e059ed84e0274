"""Every setting: its default with unit and reason, and how it is read from holdfast.toml, environment and flags.

Later wins: default, holdfast.toml, environment, flag. Settings are read once, at start, into one frozen object per
part; nothing else in Holdfast looks at the environment. docs/settings.md is made from this file (a test compares them).
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import BadInput, SettingError
from holdfast.model.names import check_project, check_subscription, check_topic, subscription_path

Check = Callable[[Any], str | None]  # None when the value is allowed, else what is allowed


def _between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be from {low:g} to {high:g}"


def _one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"


def _not_empty(value: str) -> str | None:
    return None if value else "must not be empty"


def _allowed_networks(value: str) -> str | None:
    try:
        for part in value.split(","):
            if part.strip() not in ("auto", "none", "loopback", "private"):
                ipaddress.ip_network(part.strip())
    except ValueError:
        return "must be auto, none, loopback, private or networks such as 10.1.0.0/16, separated by commas"
    return None


def _url_or_empty(value: str) -> str | None:
    parts = urlsplit(value)
    if not value or (parts.scheme in ("http", "https") and parts.netloc):
        return None
    return "must be an http:// or https:// URL"


def _project_id(value: str) -> str | None:
    return _complaint(check_project, f"projects/{value}", "must be a project id, without spaces and slashes")


def _topic_id(value: str) -> str | None:
    allowed = "must be a topic id: 3 to 255 letters, digits and -_.~+%, a letter first, not starting with 'goog'"
    return _complaint(check_topic, f"projects/any/topics/{value}", allowed)


def _topic_or_empty(value: str) -> str | None:
    if value.startswith("projects/"):
        return _complaint(check_topic, value, "must be a topic id, or projects/PROJECT/topics/ID")
    return _topic_id(value) if value else None


def _subscriptions(names: Sequence[str]) -> str | None:
    allowed = "must be subscription ids, or projects/PROJECT/subscriptions/ID"
    complaints = (_complaint(check_subscription, subscription_path("any", name), allowed) for name in names)
    return next(filter(None, complaints), None)


def _complaint(check: Callable[[str, str], None], path: str, allowed: str) -> str | None:
    try:
        check("path", path)
    except BadInput:
        return allowed
    return None


class Texts(tuple[str, ...]):
    """The default of a setting that is a list of texts; other tuples are lists of tables."""


def setting(default: Any, doc: str, *, check: Check | None = None, variable: str = "") -> Any:
    """`variable` is a second environment name, kept from the services that Holdfast replaces."""
    metadata = {"doc": doc, "check": check, "variable": variable}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


_PORT = _between(0, 65535)


@dataclass(frozen=True, slots=True)
class GeneralSettings:
    data: str = setting(".holdfast", "Directory that holds all files of this installation.", check=_not_empty)
    memory: bool = setting(False, "Keep everything in memory; nothing survives the process.")
    project: str = setting(
        "local",
        "Project id of the default topology and of short names.",
        check=_project_id,
        variable="GCP_PROJECT",
    )
    emulator_host: str = setting(
        "",
        "HOST:PORT of the broker that `consume`, `desk` and `demo` talk to. Empty: Cloud Pub/Sub with your "
        "credentials, except that `demo` then looks for `up` on this machine.",
        variable="PUBSUB_EMULATOR_HOST",
    )
    log_format: str = setting(
        "auto",
        "`text`, `json`, or `auto`: text on a terminal, else JSON.",
        check=_one_of("auto", "text", "json"),
    )
    log_level: str = setting(
        "info", "Least severe level that is logged.", check=_one_of("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    host: str = setting(
        "127.0.0.1", "Address the broker listens on. Loopback: other machines need a deliberate choice."
    )
    port: int = setting(
        8085, "Port of the Pub/Sub API, the one Google's emulator uses. 0 takes a free one.", check=_PORT
    )
    grpc_port: int = setting(
        0,
        "A second port, for gRPC alone, where REST must not be reached. 0 means none.",
        check=_PORT,
    )
    strict: bool = setting(
        False,
        "Behave exactly as Cloud Pub/Sub: a push consumer's `Holdfast-Dead-Letter: now` and `Retry-After` are ignored, "
        "`x-holdfast-…` push attributes are refused and dead letters carry only the documented attributes.",
    )
    cache_megabytes: int = setting(
        64,
        "Newest messages kept in memory over all topics; older ones are read from disk.",
        check=_between(1, 65536),
    )
    breaker_share: float = setting(
        0.5,
        "Delivery of a subscription pauses when so large a share of its messages fail within a minute, for reasons "
        "that are not the messages'. 0 never pauses; the label `holdfast-breaker: off` of a subscription says so for "
        "that one. Off with `strict`.",
        check=_between(0, 1),
    )
    breaker_minimum: int = setting(
        20,
        "So many messages must have been acked or have failed in that minute before it pauses.",
        check=_between(1, 1_000_000),
    )
    breaker_seconds: float = setting(
        5.0,
        "The first pause. Then one message is tried: if it fails, the pause doubles, and if it is acked, all go on.",
        check=_between(0.1, 3600),
    )
    breaker_longest_seconds: float = setting(600.0, "The longest pause.", check=_between(0.1, 86_400))
    ordered_dead_letters: str = setting(
        "pass",
        "When a message with an ordering key is dead-lettered: `pass` lets the next of its key go, as Cloud Pub/Sub "
        "does; `hold` has them wait until it is replayed or released. The label `holdfast-ordered-dead-letters` of a "
        "subscription says it for that one.",
        check=_one_of("pass", "hold"),
    )
    replay_memory_hours: float = setting(
        24.0,
        "How long a message that was sent to one subscription alone is remembered: under its replay id it is not sent "
        "again, and what became of it is told. One that is not settled is remembered for longer.",
        check=_between(1, 744),
    )


@dataclass(frozen=True, slots=True)
class PushSettings:
    workers: int = setting(
        0,
        "Subscriptions served at once. A worker reads and sends, and never waits for an answer, so no endpoint can "
        "hold it. 0 means 2 for each core.",
        check=_between(0, 1000),
    )
    timeout_seconds: float = setting(
        30.0,
        "Longest wait for an answer; never past the subscription's ack deadline.",
        check=_between(0.1, 600),
    )
    max_requests: int = setting(
        256,
        "Requests under way at once over all push subscriptions. One of them takes no more than is left for the "
        "others; each may always have one.",
        check=_between(1, 100_000),
    )
    concurrency: int = setting(
        100,
        "Requests under way at once for one push subscription, at most: its window grows up to this while they "
        "succeed. The push attribute `x-holdfast-concurrency` sets it for one subscription.",
        check=_between(1, 10_000),
    )
    per_second: float = setting(
        0.0,
        "Requests a second for one push subscription, at most. 0 means no limit. The push attribute "
        "`x-holdfast-per-second` sets it for one subscription.",
        check=_between(0, 1_000_000),
    )
    longest_pause_seconds: float = setting(
        0.1,
        "Longest pause between two requests to an endpoint that keeps failing. It starts with 0.1 and doubles up to "
        "this; Cloud Pub/Sub goes up to 60.",
        check=_between(0, 600),
    )
    drop_after_attempts: int = setting(
        0,
        "Log and drop a message after so many failed attempts where the subscription has no dead-letter policy. 0 "
        "means never: it is tried until its retention ends, as Cloud Pub/Sub does.",
        check=_between(0, 1_000_000),
    )
    confirm_endpoints: bool = setting(
        False,
        "Send nothing to any endpoint before it has agreed, by answering an OPTIONS request. Where this is off, the "
        "push attribute `x-holdfast-confirm` turns it on for one subscription.",
    )
    grace_seconds: float = setting(
        5.0, "How long running requests may take to end when the broker stops.", check=_between(0, 600)
    )
    ca_file: str = setting(
        "", "PEM file of certificate authorities that endpoints may be signed by, besides the system's."
    )
    issuer: str = setting(
        "",
        "`iss` of the tokens that push requests carry, and base of the URL of their keys. Empty: the broker's own URL.",
        check=_url_or_empty,
    )
    key_days: float = setting(
        30.0,
        "A new key signs the tokens after so many days; the old one stays valid meanwhile.",
        check=_between(1, 3650),
    )


@dataclass(frozen=True, slots=True)
class OutgoingSettings:
    allow: str = setting(
        "auto",
        "Addresses beyond the public Internet that Holdfast may send requests to: `none`, `loopback`, `private` (which "
        "includes loopback), or networks such as `10.1.0.0/16, fd00::/8`. `auto` means loopback while the broker "
        "listens on loopback only, else none.",
        check=_allowed_networks,
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = setting("127.0.0.1", "Address of the HTTP server. Loopback: there is no login yet.")
    port: int = setting(
        8080, "Port of the push endpoint and the API. 0 takes a free one.", check=_PORT, variable="PORT"
    )


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    store: str = setting(
        "",
        "URL of the document store: `memory:`, `sqlite:///file.db`, `postgresql://user@host/database` or "
        "`firestore://project/database`. Empty: `sqlite:///<data>/documents.db`.",
    )
    firestore_database: str = setting(
        "(default)", "Firestore database where the URL names none.", check=_not_empty, variable="FIRESTORE_DATABASE"
    )
    env: str = setting(
        "local", "Environment that document ids and dedupe keys carry.", check=_not_empty, variable="ENV"
    )
    default_region: str = setting(
        "local", "Region of events that name none.", check=_not_empty, variable="DEFAULT_REGION"
    )
    system_events_topic: str = setting(
        "system.events", "Topic of system events.", check=_topic_id, variable="SYSTEM_EVENTS_TOPIC"
    )
    subscription_topic_map: Mapping[str, str] = setting(
        {},
        "Topic of messages that do not name it, by subscription (JSON in the environment). "
        "The default topology's own subscriptions are known without it.",
        variable="SUBSCRIPTION_TOPIC_MAP",
    )
    routes: Sequence[Mapping[str, Any]] = setting(
        (),
        "Routes without Python, as `[[consumer.routes]]` tables (JSON in the environment): `topic`, `collection`, "
        "`id`, `fields`, `required`. docs/consumer.md tells them.",
    )
    service_document_id: str = setting(
        "env",
        "Id of `ops_services` documents: `env` is env__service, `env_region` is env__service__region, "
        "`plain` is the service alone.",
        check=_one_of("env", "env_region", "plain"),
    )
    max_workers: int = setting(
        8,
        "Store transactions under way at once, and handlers that wait: async, or on threads. "
        "What waits shares a transaction.",
        check=_between(1, 1000),
        variable="CONSUMER_MAX_WORKERS",
    )
    queue_size: int = setting(
        64,
        "Messages that may wait for a worker; the next is answered 429.",
        check=_between(1, 100_000),
        variable="CONSUMER_QUEUE_SIZE",
    )
    pull_max_messages: int = setting(
        1000,
        "Messages of one pulled subscription that may be in our hands at once: being worked on, waiting, or not acked "
        "yet. The broker sends no more until some are settled.",
        check=_between(1, 100_000),
    )
    pull_max_megabytes: int = setting(
        64, "The same, as the size of their payloads. One message more is possible.", check=_between(1, 65536)
    )
    max_lease_seconds: float = setting(
        3600.0,
        "How long a pulled message's deadline is extended while it is worked on. Then the broker may send it again.",
        check=_between(10, 86_400),
    )
    drain_seconds: float = setting(
        8.0,
        "At a stop: longest wait for pulled messages that are being worked on. What is not done then is given back.",
        check=_between(0, 3600),
    )
    retry_max_attempts: int = setting(
        6,
        "Times that a store which is not there is asked, for one message.",
        check=_between(1, 1000),
        variable="FIRESTORE_RETRY_MAX_ATTEMPTS",
    )
    retry_initial_backoff_seconds: float = setting(
        0.25,
        "First pause between two of these.",
        check=_between(0, 600),
        variable="FIRESTORE_RETRY_INITIAL_BACKOFF_S",
    )
    retry_max_backoff_seconds: float = setting(
        6.0,
        "Longest pause between two of these; each is twice as long as the one before.",
        check=_between(0, 600),
        variable="FIRESTORE_RETRY_MAX_BACKOFF_S",
    )
    retry_max_total_seconds: float = setting(
        8.0,
        "Time after which no further one is begun: the broker sends the message again.",
        check=_between(0, 600),
        variable="FIRESTORE_RETRY_MAX_TOTAL_S",
    )
    dead_letter_policy: str = setting(
        "auto",
        "Whether subscriptions dead-letter what fails: `always`, `never`, or `auto`: those whose deliveries tell their "
        "attempt. Poison from others is recorded as a failed message, then acked.",
        check=_one_of("auto", "always", "never"),
    )
    dlq_topic: str = setting(
        "",
        "Topic, by id or full path, for failed messages that the subscription does not dead-letter, and for those that "
        "the store refuses for good. Empty: the first go to `desk.failures`, the others are sent again.",
        check=_topic_or_empty,
        variable="DLQ_TOPIC",
    )
    dlq_publish_deadline_seconds: float = setting(
        10.0,
        "Longest wait for that topic to have it. Without its word the message is not acked.",
        check=_between(0.1, 600),
        variable="DLQ_PUBLISH_DEADLINE_S",
    )
    future_seconds: float = setting(
        300.0,
        "An event whose time is further ahead of our clock is flagged in the log: it wins over all that come after it.",
        check=_between(0, 10**9),
    )
    refuse_future: bool = setting(False, "Treat such an event as poison.")
    service: str = setting("holdfast", "Name of this service in its log.", check=_not_empty, variable="K_SERVICE")
    version: str = setting("", "Version in its log. Empty: Holdfast's own.", variable="K_REVISION")
    sha: str = setting("", "Commit in its log. Empty: none.", variable="GIT_SHA")
    dedupe_days: float = setting(
        7.0,
        "How long a message id or event id is remembered; Pub/Sub redelivers for 7 days.",
        check=_between(0.001, 365),
    )


@dataclass(frozen=True, slots=True)
class ConsumerAuthSettings:
    push: str = setting(
        "auto",
        "Whether push requests must carry a valid token: `required`, `off`, or `auto`: required in `up`, and in "
        "`consume` when `audience` is set.",
        check=_one_of("auto", "required", "off"),
    )
    audience: str = setting("", "Audience that a token must name. Empty in `up`: the URL of its own push endpoint.")
    issuer: str = setting(
        "", "Issuer that a token must name. Empty: `https://accounts.google.com`; in `up`, its own broker."
    )
    keys_url: str = setting(
        "", "Where the issuer's keys (a JWKS) are. Empty: Google's; in `up`, its own broker's without a request."
    )
    email: str = setting(
        "",
        "Service account that a token must name. Empty: any in `consume`; in `up`, the one of its own subscriptions.",
    )


@dataclass(frozen=True, slots=True)
class DeskSettings:
    failures: str = setting(
        "",
        "URL of the desk's store: `memory:`, `sqlite:///file.db` or `postgresql://user@host/database`. Empty: "
        "`sqlite:///<data>/failures.db`.",
    )
    subscriptions: Sequence[str] = setting(
        Texts(),
        "Subscriptions of dead letters that the desk reads besides all whose id ends in `.dlq.desk`, as a list of ids "
        "or full paths (in the environment separated by commas).",
        check=_subscriptions,
    )
    retry: Sequence[Mapping[str, Any]] = setting(
        (),
        "What is retried by itself, as `[[desk.retry]]` tables (JSON in the environment): `reason`, `delays`, `class`, "
        "`outcome`. docs/desk.md tells them.",
    )
    retry_jitter: float = setting(
        0.2,
        "Each delay of an automatic retry is longer or shorter by up to this share of it, so that what failed together "
        "does not return together.",
        check=_between(0, 1),
    )
    retry_per_second: float = setting(
        100.0, "Automatic retries that are sent in a second, at most.", check=_between(0.01, 100_000)
    )
    retry_settle_seconds: float = setting(
        900.0,
        "An automatic retry through a broker that does not tell what became of it, such as Cloud Pub/Sub, has "
        "succeeded when it is not dead-lettered within this time.",
        check=_between(1, 7 * 86_400),
    )
    replay_per_second: float = setting(
        50.0,
        "Messages that a replay sends in a second, unless it says otherwise. 0: no bound.",
        check=_between(0, 100_000),
    )
    max_generation: int = setting(
        5,
        "A message that was sent again and failed so often is not sent by replays any more.",
        check=_between(1, 1000),
    )
    redact: Sequence[str] = setting(
        Texts(),
        "What nobody sees without `reveal_token`, as a list of rules (in the environment separated by commas): "
        "`payload:card.number`, `payload:**.email`, `attribute:token`, `key`. docs/desk.md tells them.",
    )
    reveal_token: str = setting(
        "", "Whoever sends it in the header `Holdfast-Reveal` sees what is redacted. Empty: nobody does."
    )
    keep_retry_success_days: float = setting(
        30.0, "How long the desk keeps what a retry has mended. 0 means for ever.", check=_between(0, 36_500)
    )
    keep_replayed_days: float = setting(
        30.0, "How long it keeps what people have sent again. 0 means for ever.", check=_between(0, 36_500)
    )
    keep_permanent_failure_days: float = setting(
        2557.0, "How long it keeps what failed for good: 7 years. 0 means for ever.", check=_between(0, 36_500)
    )


@dataclass(frozen=True, slots=True)
class TopologySettings:
    create: str = setting(
        "auto",
        "Create absent topics and subscriptions at start: `always`, `never`, or `auto`: on our own broker and on "
        "emulators, never on Cloud Pub/Sub.",
        check=_one_of("auto", "always", "never"),
    )
    ack_deadline_seconds: int = setting(30, "Ack deadline of the default push subscriptions.", check=_between(10, 600))
    max_delivery_attempts: int = setting(
        5, "Attempts before a message of the default subscriptions is dead-lettered.", check=_between(5, 100)
    )
    minimum_backoff_seconds: float = setting(
        10.0,
        "Shortest wait before a message of the default subscriptions is sent again.",
        check=_between(0, 600),
    )
    maximum_backoff_seconds: float = setting(
        600.0,
        "Longest wait before a message of the default subscriptions is sent again.",
        check=_between(0, 600),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """A table of holdfast.toml per part; `general` is what stands there before the first table."""

    general: GeneralSettings = field(default_factory=GeneralSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    push: PushSettings = field(default_factory=PushSettings)
    outgoing: OutgoingSettings = field(default_factory=OutgoingSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    consumer_auth: ConsumerAuthSettings = field(default_factory=ConsumerAuthSettings)
    desk: DeskSettings = field(default_factory=DeskSettings)
    topology: TopologySettings = field(default_factory=TopologySettings)


# Table of holdfast.toml -> the part of Settings it fills.
TABLES: Mapping[str, str] = {
    "": "general",
    "broker": "broker",
    "broker.push": "push",
    "outgoing": "outgoing",
    "http": "http",
    "consumer": "consumer",
    "consumer.auth": "consumer_auth",
    "desk": "desk",
    "topology": "topology",
}

_PARTS: Mapping[str, type[Any]] = {
    "general": GeneralSettings,
    "broker": BrokerSettings,
    "push": PushSettings,
    "outgoing": OutgoingSettings,
    "http": HttpSettings,
    "consumer": ConsumerSettings,
    "consumer_auth": ConsumerAuthSettings,
    "desk": DeskSettings,
    "topology": TopologySettings,
}

CONFIG_VARIABLE = "HOLDFAST_CONFIG"
CONFIG_FILE = "holdfast.toml"


@dataclass(frozen=True, slots=True)
class Known:
    """One setting as users see it: `key` in holdfast.toml, its environment variables, its default."""

    key: str
    part: str
    spec: Field[Any]

    @property
    def variable(self) -> str:
        return "HOLDFAST_" + self.key.upper().replace(".", "_")

    @property
    def other_variable(self) -> str:
        return str(self.spec.metadata["variable"])

    @property
    def doc(self) -> str:
        return str(self.spec.metadata["doc"])

    @property
    def default(self) -> Any:
        return getattr(_PARTS[self.part](), self.spec.name)

    def convert(self, value: object, source: str) -> Any:
        """`source` is how the user wrote it (a key, a variable or a flag), for the error."""
        converted = _convert(source, value, self.default)
        check: Check | None = self.spec.metadata["check"]
        complaint = check(converted) if check else None
        if complaint:
            raise SettingError(source, value, complaint)
        return converted


def known_settings() -> Iterator[Known]:
    for table, part in TABLES.items():
        for spec in fields(_PARTS[part]):
            yield Known(f"{table}.{spec.name}" if table else spec.name, part, spec)


def load_settings(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """`flags` maps keys such as "broker.port" to what the command line said; None values mean "not given"."""
    environ = os.environ if environ is None else environ
    by_key = {known.key: known for known in known_settings()}
    values: dict[str, Any] = {}
    for key, value in _file_values(_config_path(config, environ)).items():
        _require_known(key, value, by_key)
        values[key] = by_key[key].convert(value, key)
    for key, (variable, text) in _environment_values(environ, by_key).items():
        values[key] = by_key[key].convert(text, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = by_key[key].convert(value, key)
    return _build(values, by_key)


def _build(values: Mapping[str, Any], by_key: Mapping[str, Known]) -> Settings:
    parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for key, value in values.items():
        parts[by_key[key].part][by_key[key].spec.name] = value
    settings = Settings(**{part: _PARTS[part](**given) for part, given in parts.items()})
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    """What no single value can tell."""
    shortest, longest = settings.topology.minimum_backoff_seconds, settings.topology.maximum_backoff_seconds
    if shortest > longest:
        allowed = f"must not be above topology.maximum_backoff_seconds, which is {longest:g}"
        raise SettingError("topology.minimum_backoff_seconds", shortest, allowed)


def _config_path(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    if config is not None:
        if not config.is_file():
            raise SettingError("--config", str(config), "there is no such file")
        return config
    default = Path(CONFIG_FILE)
    return default if default.is_file() else None


def _file_values(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("--config", str(path), f"is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingError("--config", str(path), f"cannot be read: {error.strerror}") from error
    return dict(_flatten("", tree))


def _flatten(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    keys = {known.key for known in known_settings()}
    for name, value in tree.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict) and key not in keys:  # a table of settings, not a setting that is a table
            yield from _flatten(key, value)
        else:
            yield key, value


def _environment_values(environ: Mapping[str, str], by_key: Mapping[str, Known]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    ours = {known.variable: known.key for known in by_key.values()}
    for key, known in by_key.items():
        if known.other_variable and environ.get(known.other_variable):
            found[key] = (known.other_variable, environ[known.other_variable])
    for variable, text in environ.items():
        if variable in ours:
            found[ours[variable]] = (variable, text)
        elif variable.startswith("HOLDFAST_") and variable != CONFIG_VARIABLE:
            raise SettingError(variable, text, "there is no such setting" + _did_you_mean(variable, ours))
    return found


def _require_known(key: str, value: object, by_key: Mapping[str, Known]) -> None:
    if key not in by_key:
        raise SettingError(key, value, "there is no such setting" + _did_you_mean(key, by_key))


def _did_you_mean(name: str, names: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, names, 1, cutoff=0.8)  # lower, the common HOLDFAST_ alone would do
    return f"; did you mean {close[0]}?" if close else "; docs/settings.md lists them all"


def _convert(source: str, value: object, default: object) -> Any:
    """To the type of the default. Text is parsed, because environment and flags have nothing else."""
    if isinstance(default, bool):
        return _to_bool(source, value)
    if isinstance(default, int):
        return _to_number(source, value, int)
    if isinstance(default, float):
        return _to_number(source, value, float)
    if isinstance(default, Mapping):
        return _to_mapping(source, value)
    if isinstance(default, Texts):
        return _to_texts(source, value)
    if isinstance(default, tuple):
        return _to_tables(source, value)
    if not isinstance(value, str):
        raise SettingError(source, value, "must be text")
    return value


def _to_bool(source: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise SettingError(source, value, "must be true or false")


def _to_number(source: str, value: object, kind: type[int] | type[float]) -> float:
    what = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise SettingError(source, value, f"must be {what}")
    if kind is int and isinstance(value, float):
        raise SettingError(source, value, f"must be {what}")
    try:
        return kind(value)
    except ValueError as error:
        raise SettingError(source, value, f"must be {what}") from error


def _to_mapping(source: str, value: object) -> Mapping[str, str]:
    wanted = 'must map text to text, such as {"my-subscription": "market-ticks"}'
    parsed = _from_json(source, value, wanted)
    if not isinstance(parsed, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str) for key, item in parsed.items()
    ):
        raise SettingError(source, value, wanted)
    return dict(parsed)


def _to_tables(source: str, value: object) -> Sequence[Mapping[str, Any]]:
    wanted = "must be a list of tables"
    parsed = _from_json(source, value, wanted)
    if not isinstance(parsed, list) or not all(isinstance(item, Mapping) for item in parsed):
        raise SettingError(source, value, wanted)
    return tuple(parsed)


def _to_texts(source: str, value: object) -> Texts:
    wanted = "must be a list of texts, or a text of them separated by commas"
    given = value
    if isinstance(value, str):
        given = _from_json(source, value, wanted) if value.startswith("[") else value.split(",")
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise SettingError(source, value, wanted)
    return Texts(item.strip() for item in given if item.strip())


def _from_json(source: str, value: object, wanted: str) -> object:
    """Of text, which is how the environment tells what is not text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise SettingError(source, value, wanted) from error
