"""Verbs that show what ports, queues and guards count, once, again and again, or served to Prometheus."""
