"""The desk's store, written once for SQLite and PostgreSQL. Each noun has a file with its statements and operations."""
