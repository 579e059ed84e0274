"""The broker: topics, subscriptions, a durable log, leases, push and dead letters."""
