"""Pub/Sub schemas: definitions, their revisions, and whether a message fits one.

Nothing here loads fastavro or protoc before a schema is used: most brokers have none, and start-up time matters.
"""
