"""When somebody must be told: one table of rules, what judges them, and how people hear of it."""
