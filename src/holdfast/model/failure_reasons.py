"""The reasons of failures that may pass by themselves, as the desk groups and retries by them. Names only."""

from __future__ import annotations

DATABASE_CONNECTION_ERROR = "DATABASE_CONNECTION_ERROR"
API_RATE_LIMIT_EXCEEDED = "API_RATE_LIMIT_EXCEEDED"
KAFKA_BROKER_UNAVAILABLE = "KAFKA_BROKER_UNAVAILABLE"
MISCONFIGURED = "MISCONFIGURED"

# None of the above: known to pass, or not known at all.
TRANSIENT_ERROR = "TRANSIENT_ERROR"
UNCLASSIFIED_ERROR = "UNCLASSIFIED_ERROR"
