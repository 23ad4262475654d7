"""Errors of operations of a scale-up domain."""

from __future__ import annotations

import enum

from testbed.protocols.errors import TransportError


class Outcome(enum.IntEnum):
    """`enum status` (transactions.h) and `enum outcome` (endpoint.h)."""

    OK = 0
    REFUSED = 1
    MALFORMED = 2
    BUSY = 3
    UNREACHABLE = 4
    TIMEOUT = 16
    LINK_DOWN = 17
    CANCELLED = 18


class ScaleUpError(TransportError):
    """An operation that failed. What it has done until then is done."""


class WindowRefused(ScaleUpError):
    """The peer has no such window, its key is another one, or it does not let this GPU do that there."""


class PeerBusy(ScaleUpError):
    """The peer has no room for a message."""


class TransactionTimeout(ScaleUpError):
    """A transaction was sent and not answered in time."""


class LinkDown(ScaleUpError):
    """All planes are down, or do not reach the peer; or one went down that had an atomic or a message under way, of
    which nobody knows whether it was carried out."""


class OperationCancelled(ScaleUpError):
    """It was given up here."""


_ERRORS: dict[Outcome, tuple[type[ScaleUpError], str]] = {
    Outcome.REFUSED: (WindowRefused, "the peer refuses the access"),
    Outcome.MALFORMED: (ScaleUpError, "the peer does not understand, or is not understood"),
    Outcome.BUSY: (PeerBusy, "the peer has no room for a message"),
    Outcome.TIMEOUT: (TransactionTimeout, "the peer does not answer"),
    Outcome.UNREACHABLE: (LinkDown, "no plane reaches the peer"),
    Outcome.LINK_DOWN: (LinkDown, "the link is down"),
    Outcome.CANCELLED: (OperationCancelled, "it was given up"),
}


def error_of(outcome: int) -> ScaleUpError | None:
    """Return the error to be raised for the outcome of an operation; None where it is done."""
    if outcome == Outcome.OK:
        return None
    try:
        kind, words = _ERRORS[Outcome(outcome)]
    except (ValueError, KeyError):
        return ScaleUpError(f"the peer answers with status {outcome}")
    return kind(words)
