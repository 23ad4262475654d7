"""Figures by which one chooses among designs: traffic, failures, cables, and what a design costs."""
