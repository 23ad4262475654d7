"""A lab that is up, as the console sees it: its shape, its state, its counters and its events."""
