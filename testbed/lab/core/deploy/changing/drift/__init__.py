"""The drift of a lab that is up from its record, and its repair."""
