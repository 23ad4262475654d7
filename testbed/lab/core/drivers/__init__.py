"""What does the operations of a plan: network namespaces and netlink, FRR, and what this machine can do of it."""
