"""Telling a change of a lab that is up: as rows for people and programs, and as events."""
