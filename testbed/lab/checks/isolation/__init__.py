"""Proves with real packets and real attacks that the networks of a lab are apart and its access ports guarded."""
