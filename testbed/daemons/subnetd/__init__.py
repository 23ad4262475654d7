"""The wires of an InfiniBand subnet that is up: a process that carries frames by the tables of the subnet manager.

`process` is what runs (`python -m testbed.daemons.subnetd`), `client` what starts it, asks it and ends it,
`description` what it is told, `adapters` the HCAs, which programs of hosts open, and `questions` where tools ask for
counters. Switching is C
(`testbed.protocols.infiniband`), the same that simulations have, driven by the machine's clock here.
"""
