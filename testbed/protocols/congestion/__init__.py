"""Congestion control that transports share: what a controller is told, and the controllers of rates and delays."""
