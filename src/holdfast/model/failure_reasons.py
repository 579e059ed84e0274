"""The reasons of failures, as the desk groups and retries by them. Names only."""

from __future__ import annotations

# Of the message itself; what could be read and is wrong is errors.WRONG_SHAPE.
DECODE_ERROR = "DECODE_ERROR"
UNROUTABLE = "UNROUTABLE"
MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"

# What may pass by itself.
DATABASE_CONNECTION_ERROR = "DATABASE_CONNECTION_ERROR"
API_RATE_LIMIT_EXCEEDED = "API_RATE_LIMIT_EXCEEDED"
KAFKA_BROKER_UNAVAILABLE = "KAFKA_BROKER_UNAVAILABLE"
BROKER_UNAVAILABLE = "BROKER_UNAVAILABLE"
MISCONFIGURED = "MISCONFIGURED"

# None of the above: known to pass, or not known at all.
TRANSIENT_ERROR = "TRANSIENT_ERROR"
UNCLASSIFIED_ERROR = "UNCLASSIFIED_ERROR"
