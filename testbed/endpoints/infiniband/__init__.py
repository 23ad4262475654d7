"""Programs of hosts at the HCAs of an InfiniBand subnet that is up.

`adapter` opens an HCA, by which datagrams go to others and come from them, and `frames` is a tool that sends and counts
them. They stand on the standard library and `testbed.protocols` alone.
"""
