"""Pub/Sub schemas: definitions, their revisions, and whether a message fits one.

protoc runs in a child process, so nothing here loads it: most brokers have no schema, and start-up time matters.
"""
