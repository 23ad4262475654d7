"""Collectives: their algorithms as steps, their data, and a reference that executes them in memory."""
