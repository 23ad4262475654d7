"""How steady the figures of scenarios are, over several runs of each."""
