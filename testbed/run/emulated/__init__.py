"""Runs on labs of this machine: the workers and programs that move their traffic, and the points and sweeps of them."""
