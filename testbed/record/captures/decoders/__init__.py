"""Packets of our transports in captures: what they are, as a line and as a document, and what flows had of them."""
