"""Topics, subscriptions, schemas, snapshots and messages by hand, at any Pub/Sub: ours, Google's emulator or Cloud."""
