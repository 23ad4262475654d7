"""The foundation that all other rooms stand on: names, units, errors, files, YAML, and the Linux kernel as a library.

Nothing in here knows of labs, transports or scenarios.
"""
