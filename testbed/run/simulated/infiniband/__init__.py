"""Runs over an InfiniBand subnet in virtual time: OpenSM's tables, this project's switches, and the workers' own queue
pairs at the simulator's HCAs."""
