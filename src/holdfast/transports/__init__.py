"""How the consumer and the desk reach a broker: `local` in the same process, `google` over the network."""
