"""Verbs about this machine, the lab VM and the images of containers."""
