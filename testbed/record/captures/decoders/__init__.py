"""Packets of our transports in captures: which protocols are found, and what flows had of them."""
