"""Topology files: what may be written in them, and the lab that they describe."""
