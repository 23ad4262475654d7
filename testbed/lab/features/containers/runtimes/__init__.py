"""Runtimes: what a node is besides a network namespace, behind one interface for all of them."""
