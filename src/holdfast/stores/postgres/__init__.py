"""Stores in a PostgreSQL database, which several processes may use at once."""
