"""What can be wrong, in one small tree."""

from __future__ import annotations


class UetError(Exception):
    """Anything this package raises on purpose."""


class DecodeError(UetError):
    """A datagram that is not a packet of this protocol. Decoders raise nothing else, whatever the bytes.

    `offset` counts bytes from the start of what the decoder was given to the field that is wrong.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class UsageError(UetError):
    """A local caller asks for what the protocol or this endpoint cannot do."""
