"""The version of the testbed."""

__version__ = "1.0.0"
