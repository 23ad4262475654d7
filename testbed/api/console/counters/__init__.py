"""The counters of all ports twice a second, as columns: read, told where they changed, and kept for a while."""
