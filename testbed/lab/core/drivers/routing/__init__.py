"""Routing daemons: starting FRR in nodes, and asking it."""
