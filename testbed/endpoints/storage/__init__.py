"""Storage targets and initiators: sockets, clock and media for NVMe over TCP (`testbed.protocols.nvme`).

It stands on the standard library and `testbed.protocols` alone, so that it ships into a container without the rest.
"""
