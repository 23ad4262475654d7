"""One module for each transport: how a worker moves data over it, and what it can be told about it."""
