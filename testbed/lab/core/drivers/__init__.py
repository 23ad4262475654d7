"""Carrying out the operations of a plan: network namespaces and netlink, FRR, and the abilities of this machine."""
