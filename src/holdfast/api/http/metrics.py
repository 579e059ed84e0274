"""GET /metrics: what the process counts, in Prometheus' text format, or as OpenMetrics for who asks for it.

prometheus_client could write both, but takes 0.3 to 0.5 seconds for a thousand subscriptions, in which nothing else
would be served. The tests read ours with its parsers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.api.http.errors import with_errors
from holdfast.metrics.metric import Family, Histogram, Kind, Metric, Sample
from holdfast.metrics.registry import MetricsRegistry

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Written before others have a turn: about a millisecond's worth of histograms.
SAMPLES_AT_ONCE = 100


def routes(registry: MetricsRegistry) -> list[Route]:
    async def metrics(request: Request) -> Response:
        as_open_metrics = _wants_open_metrics(",".join(request.headers.getlist("accept")))
        pieces: list[str] = []
        for piece in _written(await registry.collect(), as_open_metrics):
            pieces.append(piece)
            await asyncio.sleep(0)
        content_type = OPEN_METRICS if as_open_metrics else TEXT
        return Response("".join(pieces), headers={"Content-Type": content_type})

    return [Route("/metrics", with_errors(metrics), methods=["GET"])]


# Which format.


def _wants_open_metrics(accept: str) -> bool:
    """Where both are as welcome, the newer one: Prometheus itself asks for it first."""
    return 0 < _weight(accept, "application/openmetrics-text", "1.0.0") >= _weight(accept, "text/plain", "0.0.4")


def _weight(accept: str, media_type: str, version: str) -> float:
    """How welcome this is, from 0 to 1. One without a version means any."""
    found = 0.0
    for choice in accept.split(","):
        name, *parameters = [part.strip().lower() for part in choice.split(";")]
        values = {key.strip(): value.strip() for key, _, value in (one.partition("=") for one in parameters)}
        if name == media_type and values.get("version", version) == version:
            found = max(found, _quality(values.get("q", "1")))
    return found


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# The text.


def _written(families: Sequence[Family], as_open_metrics: bool) -> Iterator[str]:
    """In pieces that are quickly made."""
    for metric, samples in families:
        yield _head(metric, as_open_metrics)
        lines = _histogram_lines if metric.kind is Kind.HISTOGRAM else _plain_lines
        for start in range(0, len(samples), SAMPLES_AT_ONCE):
            yield lines(metric, samples[start : start + SAMPLES_AT_ONCE])
    if as_open_metrics:
        yield "# EOF\n"


def _head(metric: Metric, as_open_metrics: bool) -> str:
    # OpenMetrics names a counter without its suffix here, and also escapes quotes.
    name = metric.name.removesuffix("_total") if as_open_metrics else metric.name
    doc = _escaped(metric.doc) if as_open_metrics else metric.doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {doc}\n# TYPE {name} {metric.kind}\n"


def _plain_lines(metric: Metric, samples: Sequence[Sample]) -> str:
    lines: list[str] = []
    for values, value in samples:
        labels = _labels(metric, values)
        lines.append(f"{metric.name}{{{labels}}} {value}\n" if labels else f"{metric.name} {value}\n")
    return "".join(lines)


def _histogram_lines(metric: Metric, samples: Sequence[Sample]) -> str:
    lines: list[str] = []
    name = metric.name
    for values, value in samples:
        assert isinstance(value, Histogram)
        labels = _labels(metric, values)
        bucket = f'{name}_bucket{{{labels},le="' if labels else f'{name}_bucket{{le="'
        own = f"{{{labels}}}" if labels else ""
        counts = list(accumulate(value.counts))  # each bucket holds the ones before it
        lines += [f'{bucket}{bound}"}} {count}\n' for bound, count in zip(value.bounds, counts, strict=False)]
        lines.append(f'{bucket}+Inf"}} {counts[-1]}\n{name}_count{own} {counts[-1]}\n{name}_sum{own} {value.total}\n')
    return "".join(lines)


def _labels(metric: Metric, values: tuple[str, ...]) -> str:
    return ",".join([f'{label}="{_escaped(value)}"' for label, value in zip(metric.labels, values, strict=True)])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
