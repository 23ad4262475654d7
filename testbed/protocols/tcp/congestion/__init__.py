"""Congestion controls, by which a connection's window grows and shrinks: NewReno, CUBIC and DCTCP, by the kernel's names."""
