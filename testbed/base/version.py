"""The version of the testbed."""

__version__ = "0.1.0"
