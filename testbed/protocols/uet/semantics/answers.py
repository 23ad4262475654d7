"""The responses of a target, as bytes: without data, and before the data of a READ or a fetching atomic.

Source: UE Specification 1.0, table 3-11 and figures 3-79 and 3-80. `packets.responses` decodes them.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.uet.packets.codes import NextHeader, ResponseList, ResponseOpcode, ReturnCode
from testbed.protocols.uet.packets.responses import RESPONSE, RESPONSE_DATA, RESPONSE_DATA_SMALL
from testbed.protocols.uet.packets.ses import RequestHeader, StandardRequest

pack_response: Final = RESPONSE.pack
"""For who has the first byte at hand: `list:2 | opcode:6`, return code, message ID, JobID, modified_length."""


def encode_response(
    code: ReturnCode,
    message_id: int,
    job_id: int,
    length: int,
    *,
    opcode: ResponseOpcode = ResponseOpcode.RESPONSE,
    place: ResponseList = ResponseList.EXPECTED,
) -> bytes:
    """A response without data (table 3-11)."""
    return pack_response(place << 6 | opcode, code, message_id, job_id, length)


def encode_data_response(
    request: RequestHeader, psn: int, message_id: int, offset: int, length: int
) -> tuple[NextHeader, bytes]:
    """The header of a response with `length` bytes of data from `offset` of what was asked for, and its next_hdr.

    A standard request has RESPONSE_DATA, which names its message ID; the others have none, so that RESPONSE_DATA_SMALL
    names their PSN (figure 3-80). `message_id`: the response's own.
    """
    opcode, code, job_id = ResponseOpcode.RESPONSE_W_DATA, ReturnCode.OK, request.job_id
    if not isinstance(request, StandardRequest):
        return NextHeader.RESPONSE_DATA_SMALL, RESPONSE_DATA_SMALL.pack(opcode, code, length, job_id, psn)
    fields = (request.message_id, length, request.request_length, offset)
    return NextHeader.RESPONSE_DATA, RESPONSE_DATA.pack(opcode, code, message_id, job_id, *fields)
