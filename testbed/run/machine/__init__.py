"""The machine under a run: how busy it was, how late it woke, and what it is."""
