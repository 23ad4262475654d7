"""The validation of files: one engine, and the types of the values that keys take."""
