"""A scenario's matrix as points, their labs, and what the records and verdicts say of the whole."""
