"""The Linux kernel from Python: namespaces, processes, netlink messages, and what Python 3.11 does not wrap."""
