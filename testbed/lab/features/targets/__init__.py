"""Storage targets: nodes that serve their medium to hosts."""
