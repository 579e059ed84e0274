"""google.pubsub.v1 over gRPC: translates between the wire and the broker, and nothing else."""
