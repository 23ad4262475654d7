"""What one run left behind, on either backend, and the figures and loads that are made of it."""
