"""What an ideal fabric would do with the traffic of a point."""
