"""The wires, HTTP and gRPC: they translate only, wire to model and errors to codes."""
