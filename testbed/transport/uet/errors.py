"""What can be wrong, in one small tree."""

from __future__ import annotations

from testbed.transport.uet.packets.codes import ReturnCode


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


class UnsupportedRequest(DecodeError):
    """An SES request of a kind that is not known here, behind a header that can be read far enough to answer it.

    `return_code` is that of the answer (tables 3-17 and 3-19).
    """

    def __init__(self, offset: int, reason: str, return_code: ReturnCode = ReturnCode.UNSUPPORTED_OP) -> None:
        super().__init__(offset, reason)
        self.return_code = return_code


class UsageError(UetError):
    """A local caller asks for what the protocol or this endpoint cannot do."""


def truncated(what: str, needed: int, length: int, offset: int = 0) -> DecodeError:
    """`what`, at `offset` of `length` bytes, ends before it has the bytes it needs."""
    return DecodeError(length, f"{what} has {needed} bytes, {max(length - offset, 0)} are there")


def unfit(header: object, what: str) -> UsageError:
    """A header that cannot be encoded because of `what`."""
    return UsageError(f"cannot be encoded ({what}): {header!r}")
