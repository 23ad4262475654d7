"""InfiniBand: a subnet as its manager has set it up, and what its tables make of the fabric."""
