"""The transports that can be simulated, a module for each of its name: `transport_registry` finds them."""
