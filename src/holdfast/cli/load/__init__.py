"""`holdfast load`: pushes messages at an endpoint as Pub/Sub would, and tells what it bears."""
