"""What this machine is able to do, found by trying it."""
