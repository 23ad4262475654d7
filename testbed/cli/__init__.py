"""The command line."""

from testbed.cli.app import main

__all__ = ["main"]
