"""What captured frames are made of: link layers, IP, tunnels one inside another, and what is at their end."""
