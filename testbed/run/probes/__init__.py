"""Small packets beside the traffic of a run, and what they found."""
