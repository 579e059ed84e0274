"""google.pubsub.v1 over REST: the same methods as over gRPC, reached by Google's own HTTP rules and JSON."""
