"""Stores in SQLite files: the default, durable with one fsync per group of changes."""
