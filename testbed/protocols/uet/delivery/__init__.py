"""Packet delivery sublayer (PDS, UE Specification 1.0 section 3.5): contexts, windows, acknowledgements, recovery."""
