"""Forwarding over the links of a fabric: next hops, sizes of packets and planes."""
