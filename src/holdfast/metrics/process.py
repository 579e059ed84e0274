"""The process itself. Those without holdfast_ have the names that Prometheus' own libraries give them."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

BUILD = Metric(
    "holdfast_build_info",
    Kind.GAUGE,
    ("version", "part"),
    "Always 1. Which version runs, and as what: up, broker, consume or desk.",
)
STARTED = Metric("holdfast_start_time_seconds", Kind.GAUGE, (), "When the process was started, in seconds since 1970.")

CPU = Metric("process_cpu_seconds_total", Kind.COUNTER, (), "Processor time spent, in user and in system mode.")
RESIDENT_MEMORY = Metric("process_resident_memory_bytes", Kind.GAUGE, (), "Memory that is in use, in bytes.")
OPEN_FDS = Metric("process_open_fds", Kind.GAUGE, (), "Open files and connections.")
MAX_FDS = Metric("process_max_fds", Kind.GAUGE, (), "The most open files and connections that the system allows.")
PROCESS_START = Metric(
    "process_start_time_seconds", Kind.GAUGE, (), "When the process was started, in seconds since 1970."
)
