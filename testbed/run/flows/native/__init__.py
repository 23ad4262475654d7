"""Flows that are sending, in C: `sending.c` is built with the compiled modules."""
