"""Link aggregation without I/O: LACP, and how two leaves are one partner in it."""
