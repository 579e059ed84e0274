"""Traces: where they are sent, and which."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import between, one_of, url_or_empty
from holdfast.settings.setting import setting

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)


@dataclass(frozen=True, slots=True)
class TraceSettings:
    endpoint: str = setting(
        "",
        "URL of an OTLP collector that takes HTTP with protobuf, such as `http://localhost:4318`; spans go to "
        "`/v1/traces` there. Empty: no traces. Needs `pip install 'holdfast[otel]'`.",
        check=url_or_empty,
        variable="OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    full_endpoint: str = setting(
        "",
        "The whole URL that spans go to, where it is another one.",
        check=url_or_empty,
        variable="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    )
    enabled: bool = setting(True, "Off: no traces, whatever the endpoint.")
    headers: str = setting(
        "",
        "Headers for the collector, such as a token: `name=value,name=value`. A secret, best left to the environment.",
        variable="OTEL_EXPORTER_OTLP_HEADERS",
    )
    sampler: str = setting(
        "parentbased_traceidratio",
        "Which traces are kept, in OpenTelemetry's words. With `parentbased_`, who began a trace has decided; the rest "
        "is for traces that begin here.",
        check=one_of(*SAMPLERS),
        variable="OTEL_TRACES_SAMPLER",
    )
    sample_ratio: float = setting(
        1.0,
        "The share of those that the `traceidratio` samplers keep.",
        check=between(0, 1),
        variable="OTEL_TRACES_SAMPLER_ARG",
    )
    service_name: str = setting(
        "",
        "`service.name` of the spans. Empty: `holdfast`, for a part alone `holdfast-broker`, `holdfast-consume`, "
        "`holdfast-desk`.",
        variable="OTEL_SERVICE_NAME",
    )
    mark_messages: bool = setting(
        False,
        "Give a message that is published without a context the attribute `googclient_traceparent`, as Google's "
        "clients do, so that its trace outlives a restart and goes on in who pulls it.",
    )
    queue_size: int = setting(
        8192,
        "Spans that wait to be sent, at most; about 2 KB each. What comes then is dropped and counted.",
        check=between(1, 1_000_000),
        variable="OTEL_BSP_MAX_QUEUE_SIZE",
    )
    flush_seconds: float = setting(5.0, "How long a stop waits for the last spans to be sent.", check=between(0, 600))

    @property
    def url(self) -> str:
        """ "" where there are none."""
        if not self.enabled:
            return ""
        return self.full_endpoint or (f"{self.endpoint.rstrip('/')}/v1/traces" if self.endpoint else "")
