"""The records on disk of the labs of this machine: their state, their journals, their directories."""
