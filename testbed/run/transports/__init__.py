"""The transports of scenarios: each owns its settings, flows, ideals, packet cost and approximations."""
