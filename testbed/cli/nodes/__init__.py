"""Verbs that work inside a lab: on its nodes, their packets, its links and queues."""
