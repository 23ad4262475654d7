"""The parts of captured frames: link layers, IP, tunnels one inside another, and what is at their end."""
