"""How the desk finds by a message's id what it knows: SQLite's format 5, and PostgreSQL's 4."""

from __future__ import annotations

# What was never sent has no id, and is in none of them.
INDEX_MESSAGES = """
    CREATE INDEX idx_failed_messages_sent_message ON failed_messages (sent_message_id) WHERE sent_message_id <> '';
    CREATE INDEX idx_replay_items_message ON replay_items (message_id) WHERE message_id <> '';
    CREATE INDEX idx_replay_items_failure ON replay_items (failure_id);
    CREATE INDEX idx_audit_entries_target ON audit_entries (target, number)
"""
