"""Scenario files: what may be written in them, and the scenario that they describe."""
