"""Nodes: network namespaces and containers, the processes inside them, and the drivers that make them."""
