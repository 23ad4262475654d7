"""Changing a lab that is up into what its file says now."""
