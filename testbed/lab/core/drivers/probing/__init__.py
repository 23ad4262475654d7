"""The abilities of this machine, found by trying them."""
