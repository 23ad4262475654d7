"""The errors of all transports, in one small tree."""

from __future__ import annotations


class TransportError(Exception):
    """Anything that a transport raises on purpose."""


class DecodeError(TransportError):
    """A datagram that is not a packet of the protocol. Decoders raise nothing else, whatever the bytes.

    `offset` counts bytes from the start of what the decoder was given to the field that is wrong.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class UsageError(TransportError):
    """A local caller asks for what the protocol or this endpoint cannot do."""


def truncated(what: str, needed: int, length: int, offset: int = 0) -> DecodeError:
    """`what`, at `offset` of `length` bytes, ends before it has the bytes it needs."""
    return DecodeError(length, f"{what} has {needed} bytes, {max(length - offset, 0)} are there")


def unfit(header: object, what: str) -> UsageError:
    """A header that cannot be encoded because of `what`."""
    return UsageError(f"cannot be encoded ({what}): {header!r}")
