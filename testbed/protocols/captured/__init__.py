"""Packets as captures have them: what every protocol's `captured` module makes of what was seen of one."""
