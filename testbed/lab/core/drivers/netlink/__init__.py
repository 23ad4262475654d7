"""Netlink: links, addresses, routes, queueing disciplines and RDMA devices as messages."""
