"""The errors of a measurement, and the exit codes that tell them."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As a shell has it for SIGINT."""


class PerftestError(Exception):
    """The measurement cannot be made, or not be finished; the text is for the user."""


class MismatchError(PerftestError):
    """The two sides were not started alike."""


class PeerGoneError(PerftestError):
    """The other side has gone, or said why it goes."""


class Interrupted(PerftestError):
    """Ctrl-C."""
