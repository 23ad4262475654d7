"""The worker of a host: it moves the bytes of its ranks' steps over a transport, with nobody in the middle.

It stands on `workload`, `agent` and `transport` alone, so that it ships into a container without the rest.
"""
