"""Settings: where they come from, which source wins, and what is said about a bad one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SettingError
from holdfast.settings import Known, Settings, known_settings, load_settings


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no holdfast.toml of the developer's is found."""
    monkeypatch.chdir(tmp_path)


def from_file(text: str, environ: Mapping[str, str] | None = None, **flags: object) -> Settings:
    Path("holdfast.toml").write_text(text, encoding="utf-8")
    return load_settings(flags, environ or {})


def from_environment(**environ: str) -> Settings:
    return load_settings({}, environ)


def complaint(*args: Any, **kwargs: Any) -> SettingError:
    with pytest.raises(SettingError) as caught:
        load_settings(*args, **kwargs)
    error = caught.value
    # Whatever it is, the text has all three.
    assert error.key in str(error)
    assert repr(error.value) in str(error)
    assert error.allowed in str(error)
    return error


# Where they come from.


def test_everything_has_a_default() -> None:
    assert load_settings({}, {}) == Settings()


def test_later_sources_win() -> None:
    """Default, file, environment, flag: with each one more, the last decides and the others stay."""
    assert load_settings({}, {}).http.port == 8080
    file = "[http]\nport = 1001\nhost = '127.0.0.2'\n"
    assert from_file(file).http.port == 1001
    environ = {"HOLDFAST_HTTP_PORT": "1002"}
    assert from_file(file, environ).http.port == 1002
    both = load_settings({"http.port": 1003}, environ)
    assert (both.http.port, both.http.host) == (1003, "127.0.0.2")


def test_a_flag_that_was_not_given_decides_nothing() -> None:
    assert load_settings({"http.port": None, "memory": None}, {"PORT": "1002"}).http.port == 1002


def test_our_own_variable_wins_over_the_one_that_services_share() -> None:
    assert from_environment(PORT="1001", HOLDFAST_HTTP_PORT="1002").http.port == 1002


def test_a_shared_variable_that_is_empty_counts_as_absent() -> None:
    assert from_environment(PORT="", ENV="").http.port == 8080


SHARED = [
    ("GCP_PROJECT", "shop", "general", "project", "shop"),
    ("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085", "general", "emulator_host", "127.0.0.1:8085"),
    ("PORT", "9090", "http", "port", 9090),
    ("ENV", "staging", "consumer", "env", "staging"),
    ("DEFAULT_REGION", "europe-west1", "consumer", "default_region", "europe-west1"),
    ("SYSTEM_EVENTS_TOPIC", "ops.events", "consumer", "system_events_topic", "ops.events"),
    ("SUBSCRIPTION_TOPIC_MAP", '{"a": "b"}', "consumer", "subscription_topic_map", {"a": "b"}),
    ("CONSUMER_MAX_WORKERS", "3", "consumer", "max_workers", 3),
    ("CONSUMER_QUEUE_SIZE", "4", "consumer", "queue_size", 4),
    ("DLQ_TOPIC", "orders-dlq", "consumer", "dlq_topic", "orders-dlq"),
    ("DLQ_PUBLISH_DEADLINE_S", "2.5", "consumer", "dlq_publish_deadline_seconds", 2.5),
    ("K_SERVICE", "shop", "consumer", "service", "shop"),
    ("K_REVISION", "shop-00007", "consumer", "version", "shop-00007"),
    ("GIT_SHA", "abc123", "consumer", "sha", "abc123"),
    ("FIRESTORE_DATABASE", "other", "consumer", "firestore_database", "other"),
    ("FIRESTORE_RETRY_MAX_ATTEMPTS", "3", "consumer", "retry_max_attempts", 3),
    ("FIRESTORE_RETRY_INITIAL_BACKOFF_S", "0.5", "consumer", "retry_initial_backoff_seconds", 0.5),
    ("FIRESTORE_RETRY_MAX_BACKOFF_S", "2", "consumer", "retry_max_backoff_seconds", 2.0),
    ("FIRESTORE_RETRY_MAX_TOTAL_S", "4", "consumer", "retry_max_total_seconds", 4.0),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", "traces", "endpoint", "http://collector:4318"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector/x", "traces", "full_endpoint", "http://collector/x"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=one", "traces", "headers", "x-token=one"),
    ("OTEL_SERVICE_NAME", "shop", "traces", "service_name", "shop"),
    ("OTEL_TRACES_SAMPLER", "always_on", "traces", "sampler", "always_on"),
    ("OTEL_TRACES_SAMPLER_ARG", "0.25", "traces", "sample_ratio", 0.25),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "500", "traces", "queue_size", 500),
]


@pytest.mark.parametrize(("variable", "text", "part", "name", "value"), SHARED)
def test_variables_that_other_services_know(variable: str, text: str, part: str, name: str, value: object) -> None:
    assert getattr(getattr(from_environment(**{variable: text}), part), name) == value


def test_every_shared_variable_is_tested_above() -> None:
    assert {known.other_variable for known in known_settings()} - {""} == {variable for variable, *_ in SHARED}


def test_the_file_is_found_by_default_by_variable_and_by_flag() -> None:
    Path("holdfast.toml").write_text("project = 'by-default'", encoding="utf-8")
    Path("a.toml").write_text("project = 'by-variable'", encoding="utf-8")
    Path("b.toml").write_text("project = 'by-flag'", encoding="utf-8")
    assert load_settings({}, {}).general.project == "by-default"
    variable = {"HOLDFAST_CONFIG": "a.toml"}
    assert load_settings({}, variable).general.project == "by-variable"
    assert load_settings({}, variable, Path("b.toml")).general.project == "by-flag"


def test_the_real_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PROJECT", "from-the-real-one")
    assert load_settings().general.project == "from-the-real-one"


def test_every_table_of_the_file() -> None:
    settings = from_file(
        """
        data = "here"
        memory = true
        [broker]
        strict = true
        [broker.push]
        workers = 7
        timeout_seconds = 2
        [http]
        host = "127.0.0.2"
        [consumer]
        env = "staging"
        subscription_topic_map = { "orders.shop" = "orders", plain = "ticks" }
        [[consumer.routes]]
        topic = "orders"
        fields = { total = "order.total" }
        [[consumer.routes]]
        topic = "refunds"
        [desk]
        failures = "memory:"
        [topology]
        max_delivery_attempts = 9
        """
    )
    assert (settings.general.data, settings.general.memory, settings.broker.strict) == ("here", True, True)
    assert (settings.push.workers, settings.push.timeout_seconds) == (7, 2.0)
    assert (settings.http.host, settings.consumer.env) == ("127.0.0.2", "staging")
    assert settings.consumer.subscription_topic_map == {"orders.shop": "orders", "plain": "ticks"}
    assert settings.consumer.routes == ({"topic": "orders", "fields": {"total": "order.total"}}, {"topic": "refunds"})
    assert (settings.desk.failures, settings.topology.max_delivery_attempts) == ("memory:", 9)


@pytest.mark.parametrize("known", list(known_settings()), ids=lambda known: known.key)
def test_each_default_is_allowed_and_keeps_its_type(known: Known) -> None:
    """By every way in: as a value of the file and as text of the environment."""
    kind = type(known.default)
    in_the_file = list(known.default) if issubclass(kind, tuple) else known.default
    as_text = json.dumps(known.default) if issubclass(kind, (dict, tuple)) else str(known.default)
    for value in (in_the_file, as_text):
        converted = known.convert(value, known.key)
        assert converted == known.default
        assert type(converted) is kind


def test_a_list_of_texts() -> None:
    rules = ("payload:card.number", "key")
    assert from_file('desk.redact = ["payload:card.number", "key"]\n').desk.redact == rules
    assert from_environment(HOLDFAST_DESK_REDACT="payload:card.number, key").desk.redact == rules
    assert from_environment(HOLDFAST_DESK_REDACT='["payload:card.number", "key"]').desk.redact == rules


@pytest.mark.parametrize("value", ["desk.redact = [1]", "desk.redact = 1", "desk.redact = '[1]'", "desk.redact = '['"])
def test_what_is_no_list_of_texts(value: str) -> None:
    with pytest.raises(SettingError, match="must be a list of texts"):
        from_file(value)


@pytest.mark.parametrize("text", ["orders", "{}", "[1]", '"x"', "[" * 100_000])
def test_routes_that_are_no_tables(text: str) -> None:
    with pytest.raises(SettingError, match="must be a list of tables"):
        from_environment(HOLDFAST_CONSUMER_ROUTES=text)


def test_routes_from_the_environment() -> None:
    routes = from_environment(HOLDFAST_CONSUMER_ROUTES='[{"topic": "orders"}]').consumer.routes
    assert routes == ({"topic": "orders"},)


@pytest.mark.parametrize(
    ("topic", "good"),
    [
        ("orders-dlq", True),
        ("projects/shop/topics/orders-dlq", True),
        ("", True),
        ("no topic", False),
        ("projects/shop/subscriptions/x", False),
    ],
)
def test_the_dead_letter_topic_is_an_id_or_a_path(topic: str, good: bool) -> None:
    if good:
        assert from_environment(HOLDFAST_CONSUMER_DLQ_TOPIC=topic).consumer.dlq_topic == topic
    else:
        with pytest.raises(SettingError, match="must be a topic id"):
            from_environment(HOLDFAST_CONSUMER_DLQ_TOPIC=topic)


def test_settings_cannot_be_changed() -> None:
    settings = load_settings({}, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.http.port = 1  # type: ignore[misc]


# Types.


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("YES", True), ("On", True), ("false", False), ("0", False), ("no", False)],
)
def test_true_and_false(text: str, value: bool) -> None:
    assert from_environment(HOLDFAST_MEMORY=text).general.memory is value


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("HOLDFAST_MEMORY", "maybe", "must be true or false"),
        ("HOLDFAST_MEMORY", "", "must be true or false"),
        ("PORT", "abc", "must be a whole number"),
        ("PORT", "80.5", "must be a whole number"),
        ("PORT", "99999", "must be from 0 to 65535"),
        ("HOLDFAST_HTTP_PORT", "", "must be a whole number"),
        ("HOLDFAST_BROKER_PORT", "-1", "must be from 0 to 65535"),
        ("HOLDFAST_BROKER_PUSH_TIMEOUT_SECONDS", "soon", "must be a number"),
        ("HOLDFAST_BROKER_PUSH_TIMEOUT_SECONDS", "nan", "must be from 0.1 to 600"),
        ("HOLDFAST_BROKER_PUSH_TIMEOUT_SECONDS", "inf", "must be from 0.1 to 600"),
        ("HOLDFAST_BROKER_PUSH_CONCURRENCY", "0", "must be from 1 to 10000"),
        ("HOLDFAST_TOPOLOGY_MAX_DELIVERY_ATTEMPTS", "4", "must be from 5 to 100"),
        ("HOLDFAST_TOPOLOGY_ACK_DEADLINE_SECONDS", "9", "must be from 10 to 600"),
        ("HOLDFAST_TOPOLOGY_CREATE", "sometimes", "must be one of auto, always, never"),
        ("HOLDFAST_LOG_FORMAT", "xml", "must be one of auto, text, json"),
        ("HOLDFAST_LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
        ("HOLDFAST_CONSUMER_SERVICE_DOCUMENT_ID", "x", "must be one of env, env_region, plain"),
        ("HOLDFAST_DATA", "", "must not be empty"),
        ("GCP_PROJECT", "a/b", "must be a project id"),
        ("GCP_PROJECT", "a b", "must be a project id"),
        ("SYSTEM_EVENTS_TOPIC", "x", "must be a topic id: 3 to 255 letters"),
        ("SYSTEM_EVENTS_TOPIC", "projects/p/topics/t", "must be a topic id"),
        ("SYSTEM_EVENTS_TOPIC", "google.events", "must be a topic id"),
        ("SUBSCRIPTION_TOPIC_MAP", "{", "must map text to text"),
        ("SUBSCRIPTION_TOPIC_MAP", "[]", "must map text to text"),
        ("SUBSCRIPTION_TOPIC_MAP", '{"a": 1}', "must map text to text"),
    ],
)
def test_a_bad_value_in_the_environment(variable: str, text: str, allowed: str) -> None:
    error = complaint({}, {variable: text})
    assert (error.key, error.value) == (variable, text)
    assert error.allowed.startswith(allowed)


@pytest.mark.parametrize(
    ("text", "key", "value", "allowed"),
    [
        ("data = 5", "data", 5, "must be text"),
        ("[data]\nx = 1", "data", {"x": 1}, "must be text"),
        ("memory = 'maybe'", "memory", "maybe", "must be true or false"),
        ("memory = 1", "memory", 1, "must be true or false"),
        ("[http]\nport = true", "http.port", True, "must be a whole number"),
        ("[http]\nport = 80.0", "http.port", 80.0, "must be a whole number"),
        ("[http]\nport = [80]", "http.port", [80], "must be a whole number"),
        ("[http]\nport = 99999", "http.port", 99999, "must be from 0 to 65535"),
        ("[broker.push]\ntimeout_seconds = 0", "broker.push.timeout_seconds", 0, "must be from 0.1 to 600"),
        (
            "[consumer.subscription_topic_map]\na = 1",
            "consumer.subscription_topic_map",
            {"a": 1},
            "must map text to text",
        ),
    ],
)
def test_a_bad_value_in_the_file(text: str, key: str, value: object, allowed: str) -> None:
    Path("holdfast.toml").write_text(text, encoding="utf-8")
    error = complaint({}, {})
    assert (error.key, error.value) == (key, value)
    assert error.allowed.startswith(allowed)


def test_a_bad_flag() -> None:
    error = complaint({"broker.port": 65536}, {})
    assert (error.key, error.value, error.allowed) == ("broker.port", 65536, "must be from 0 to 65535")


def test_a_bad_value_is_told_even_where_a_later_source_is_good() -> None:
    assert complaint({}, {"PORT": "abc", "HOLDFAST_BROKER_PORT": "1"}).key == "PORT"


def test_values_that_do_not_go_together() -> None:
    error = complaint({}, {"HOLDFAST_TOPOLOGY_MAXIMUM_BACKOFF_SECONDS": "5"})
    assert (error.key, error.value) == ("topology.minimum_backoff_seconds", 10.0)
    assert error.allowed == "must not be above topology.maximum_backoff_seconds, which is 5"


# Names.


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[broker]\nprot = 1", "broker.prot", "did you mean broker.port?"),
        ("[broker]\nmax-workers = 1", "broker.max-workers", "docs/settings.md lists them all"),
        ("memroy = true", "memroy", "did you mean memory?"),
        ("[general]\ndata = 'x'", "general.data", "docs/settings.md lists them all"),
        ("[broker.port]\nx = 1", "broker.port", "must be a whole number"),
        ("[brokers]\nport = 1", "brokers.port", "did you mean broker.port?"),
    ],
)
def test_an_unknown_key(text: str, key: str, hint: str) -> None:
    Path("holdfast.toml").write_text(text, encoding="utf-8")
    error = complaint({}, {})
    assert error.key == key
    assert hint in error.allowed


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("HOLDFAST_BROKER_PROT", "did you mean HOLDFAST_BROKER_PORT?"),
        ("HOLDFAST_PORT", "there is no such setting"),
        ("HOLDFAST_COLOUR", "docs/settings.md lists them all"),
    ],
)
def test_an_unknown_variable(variable: str, hint: str) -> None:
    error = complaint({}, {variable: "blue"})
    assert (error.key, error.value) == (variable, "blue")
    assert "there is no such setting" in error.allowed
    assert hint in error.allowed


@pytest.mark.parametrize("variable", ["HOLDFAST_SLACK_URL", "HOLDFAST_PAGERDUTY_KEY", "HOLDFAST_SMTP_PASSWORD"])
def test_an_unknown_variable_that_may_be_a_secret_is_not_shown(variable: str) -> None:
    error = complaint({}, {variable: "canary"})
    assert error.key == variable
    assert "canary" not in str(error)


def test_other_variables_are_none_of_our_business() -> None:
    assert from_environment(HOLD="x", HOLDFASTX="y", PATH="z") == Settings()


def test_no_two_settings_share_a_variable() -> None:
    names = [name for known in known_settings() for name in (known.variable, known.other_variable) if name]
    assert len(names) == len(set(names))


# The file itself.


@pytest.mark.parametrize("name", ["no-such.toml", ".", ""])
def test_a_file_that_is_not_there(name: str) -> None:
    error = complaint({}, {}, Path(name))
    assert (error.key, error.allowed) == ("--config", "there is no such file")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[broker\n", "line 1"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"a = \x00", "line 1"),
    ],
)
def test_a_file_that_is_not_toml(content: bytes, part: str) -> None:
    Path("holdfast.toml").write_bytes(content)
    error = complaint({}, {})
    assert (error.key, error.value) == ("--config", "holdfast.toml")
    assert "is not valid TOML" in error.allowed
    assert part in error.allowed


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, ""),
        ({"endpoint": "http://collector:4318/"}, "http://collector:4318/v1/traces"),
        ({"endpoint": "http://a", "full_endpoint": "http://b/spans"}, "http://b/spans"),
        ({"full_endpoint": "http://b/spans", "enabled": "off"}, ""),
    ],
)
def test_where_spans_go(given: dict[str, str], url: str) -> None:
    flags = {f"traces.{name}": value for name, value in given.items()}
    assert load_settings(flags, environ={}).traces.url == url
