"""Ideals: how an ideal fabric would carry the traffic of a point."""
