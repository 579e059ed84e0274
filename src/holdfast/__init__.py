"""The reliable middle of an event pipeline, in one Python package.

Holdfast is a durable broker that speaks Google Pub/Sub's own API, a consumer runtime that turns
messages into documents exactly once, and a dead-letter desk where people see, fix and replay what
failed.
"""

__version__ = "0.1.0"
