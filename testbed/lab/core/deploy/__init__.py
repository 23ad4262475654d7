"""Deploying, watching, checking and removing labs on this machine."""
