"""The consumer runtime: deliveries in, documents out, each effect exactly once."""

from holdfast.consumer.app import Consumer
from holdfast.consumer.changes import Count, Upsert
from holdfast.consumer.event import Event
from holdfast.errors import Misconfigured, Poison, Transient

__all__ = ["Consumer", "Count", "Event", "Misconfigured", "Poison", "Transient", "Upsert"]
