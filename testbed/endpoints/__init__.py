"""The programs inside a host: sockets, clock and timers for the transports of `testbed.protocols`.

It stands on the standard library and `testbed.protocols` alone, so that it ships into a container without the rest.
"""
