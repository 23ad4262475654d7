"""InfiniBand: what a subnet consists of, and how its frames are forwarded.

`subnet` is a subnet as its manager has programmed it: nodes, links, forwarding tables, virtual lanes, partitions; and
`routes` judges these tables. `data_path` forwards frames by them in virtual time (`native/`), and `local_routing` has
the header and the checksums of these frames. Their transport is that of `testbed.protocols.roce`.

Source: InfiniBand Architecture Specification, volume 1, release 1.4.
"""
