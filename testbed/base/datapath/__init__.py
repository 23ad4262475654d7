"""The eBPF data path of switch ports and NICs: programs in C, their maps, and the netlink messages around them."""
