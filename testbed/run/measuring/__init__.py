"""Measurements of one run, on either backend, and the figures and loads that are made of them."""
