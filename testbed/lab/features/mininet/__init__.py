"""Mininet over a deployed lab: its own classes for our nodes and links."""
