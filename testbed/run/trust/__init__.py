"""Trust checks: whether the emulation was able to do what a result claims."""
