"""Errors of UET beyond those of every transport (`testbed.protocols.errors`)."""

from __future__ import annotations

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import ReturnCode


class UnsupportedRequest(DecodeError):
    """An SES request of a kind that is not known here, behind a header that can be read far enough to answer it.

    `return_code` is that of the answer (tables 3-17 and 3-19).
    """

    def __init__(self, offset: int, reason: str, return_code: ReturnCode = ReturnCode.UNSUPPORTED_OP) -> None:
        super().__init__(offset, reason)
        self.return_code = return_code
