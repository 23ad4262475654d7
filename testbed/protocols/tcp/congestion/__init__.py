"""Congestion controls of connections: NewReno, CUBIC and DCTCP, by the kernel's names."""
