"""Versioned records of what was measured."""
