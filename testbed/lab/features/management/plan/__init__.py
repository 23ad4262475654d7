"""The out-of-band network: what the plan decides of it, and how it is kept apart from data."""
