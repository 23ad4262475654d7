"""Verbs that run scenarios, explain what they measure, and read and compare records."""
