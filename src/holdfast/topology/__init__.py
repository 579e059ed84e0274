"""Topics and subscriptions as one description, created where they are absent."""
