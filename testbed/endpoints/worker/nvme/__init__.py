"""Storage targets of a program, at the end of NVMe/TCP that serves."""
