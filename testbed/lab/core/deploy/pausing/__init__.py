"""The pause agent of a lab's ports, and how long pausing takes on this machine."""
