"""One run of one point: its traffic, the workers that move it, and what they measured."""
