"""Planning of scale-up domains: who is joined by which wires, and at which scale."""
