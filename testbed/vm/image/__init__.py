"""The image of the lab VM: what it is made from, and building it."""
