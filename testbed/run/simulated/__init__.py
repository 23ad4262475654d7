"""Scenarios on the simulator: the same files, seeds and metrics, without a lab, at the real fabric's time scale."""
