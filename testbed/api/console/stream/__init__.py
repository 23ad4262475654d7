"""The events that are told to all pages that look: kept for a while, sent as server-sent events."""
