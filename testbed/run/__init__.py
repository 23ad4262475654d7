"""Running workloads against a live lab, and judging what they measured."""
