"""Whole scenarios as flows: fluids that share links max-min fairly, with bands from packets of smaller twins."""
