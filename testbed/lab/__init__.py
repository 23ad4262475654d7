"""A lab: from a topology file over a plan to nodes, links and routing that are really there, and back to nothing."""
