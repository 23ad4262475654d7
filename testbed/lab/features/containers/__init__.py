"""Nodes that are containers of an engine: `runtime: docker`, images of our own and of others."""
