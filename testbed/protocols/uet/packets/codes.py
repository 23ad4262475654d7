"""Numbers of the wire format, under the specification's names.

Source: UE Specification 1.0.1, tables 3-16 (next header), 3-17 (opcodes), 3-44 (REQ), 3-48 (cc_type), 3-58 (NACK
codes), and the atomic operation, data type and return code tables of section 3.4.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

UDP_PORT = 4793
"""Destination port (IANA `uet`)."""
NOMINAL_OVERHEAD_BYTES = 40
"""Added to the UDP length for all congestion control arithmetic (section 3.6.12)."""
UDP_HEADER_BYTES = 8
DSCP_TRIMMED = 45
"""The code point that a switch gives to a packet that it has trimmed, by choice (section 4.1). No standard PHB uses
these two."""
DSCP_TRIMMED_LASTHOP = 47
"""The code point of a packet that was trimmed at the last port, towards its destination."""


class PdsType(IntEnum):
    """`type` of the PDS prologue."""

    RESERVED = 0
    TSS = 1
    RUD_REQ = 2
    ROD_REQ = 3
    RUDI_REQ = 4
    RUDI_RESP = 5
    UUD_REQ = 6
    ACK = 7
    ACK_CC = 8
    ACK_CCX = 9
    NACK = 10
    CP = 11
    NACK_CCX = 12
    RUD_CC_REQ = 13
    ROD_CC_REQ = 14


class NextHeader(IntEnum):
    """`next_hdr` of the PDS prologue: which SES header follows (table 3-16)."""

    NONE = 0
    REQUEST_SMALL = 1
    REQUEST_MEDIUM = 2
    REQUEST_STD = 3
    RESPONSE = 4
    RESPONSE_DATA = 5
    RESPONSE_DATA_SMALL = 6


class RequestFlag(IntFlag):
    """Flags of RUD and ROD requests."""

    RETX = 0x10
    AR = 0x08
    """An ACK is asked for."""
    SYN = 0x04


class AckFlag(IntFlag):
    """Flags of ACK, ACK_CC and ACK_CCX."""

    MARKED = 0x20
    """M: the packet that triggered this was CE-marked."""
    RETX = 0x10
    PROBE = 0x08
    REQ_CLOSE = 0x04
    REQ_CLEAR = 0x02


class NackFlag(IntFlag):
    """Flags of NACK and NACK_CCX."""

    MARKED = 0x20
    RETX = 0x10
    RUDI = 0x08
    """NT: the packet was a RUDI request; `nack_psn` is its packet ID."""


class RudiFlag(IntFlag):
    """Flags of RUDI requests and responses."""

    MARKED = 0x20
    """M, in responses alone."""
    RETX = 0x10


class ControlFlag(IntFlag):
    """Flags of control packets."""

    ISROD = 0x20
    RETX = 0x10
    AR = 0x08
    SYN = 0x04


class ControlType(IntEnum):
    """`ctl_type` of a control packet, in the place of `next_hdr`."""

    NOOP = 0
    ACK_REQ = 1
    CLEAR_CMD = 2
    CLEAR_REQ = 3
    CLOSE_CMD = 4
    CLOSE_REQ = 5
    PROBE = 6
    CREDIT = 7
    CREDIT_REQ = 8
    NEGOTIATION = 9


class CcType(IntEnum):
    """`cc_type` of an ACK_CC (table 3-48)."""

    NSCC = 0
    CREDIT = 1


class NackCode(IntEnum):
    """Table 3-58."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    TRIMMED_ACK = 0x03
    NO_PDC_AVAIL = 0x04
    NO_CCC_AVAIL = 0x05
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_GTD_DEL_AVAIL = 0x08
    NO_SES_MSG_AVAIL = 0x09
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    ROD_OOO = 0x0D
    INV_DPDCID = 0x0E
    PDC_HDR_MISMATCH = 0x0F
    CLOSING = 0x10
    CLOSING_IN_ERR = 0x11
    PKT_NOT_RCVD = 0x12
    GTD_RESP_UNAVAIL = 0x13
    ACK_WITH_DATA = 0x14
    INVALID_SYN = 0x15
    PDC_MODE_MISMATCH = 0x16
    NEW_START_PSN = 0x17
    RCVD_SES_PROCG = 0x18
    UNEXP_EVENT = 0x19
    RCVR_INFER_LOSS = 0x1A
    EXP_NACK_NORMAL = 0xFD
    EXP_NACK_ERR = 0xFE
    EXP_NACK_FATAL = 0xFF


class Opcode(IntEnum):
    """SES request opcodes (table 3-17)."""

    NO_OP = 0x00
    WRITE = 0x01
    READ = 0x02
    ATOMIC = 0x03
    FETCHING_ATOMIC = 0x04
    SEND = 0x05
    RENDEZVOUS_SEND = 0x06
    DATAGRAM_SEND = 0x07
    DEFERRABLE_SEND = 0x08
    TAGGED_SEND = 0x09
    RENDEZVOUS_TSEND = 0x0A
    DEFERRABLE_TSEND = 0x0B
    DEFERRABLE_RTR = 0x0C
    TSEND_ATOMIC = 0x0D
    TSEND_FETCH_ATOMIC = 0x0E
    MSG_ERROR = 0x0F


class RequestBit(IntFlag):
    """Byte 1 of an SES request, beside the version."""

    DC = 0x20
    """Delivery complete: answer when the data is visible."""
    IE = 0x10
    """The initiator had an error."""
    REL = 0x08
    """Relative addressing: PIDonFEP is scoped by the JobID."""
    HD = 0x04
    """Header data is present."""
    EOM = 0x02
    SOM = 0x01


class ResponseOpcode(IntEnum):
    DEFAULT_RESPONSE = 0
    RESPONSE = 1
    RESPONSE_W_DATA = 2
    NO_RESPONSE = 3


class ResponseList(IntEnum):
    """Which list a SEND met at the target. What it says of a message is for the curious: nothing depends on it."""

    EXPECTED = 0
    OVERFLOW = 1
    RESERVED_2 = 2
    RESERVED_3 = 3


class ReturnCode(IntEnum):
    NULL = 0x00
    OK = 0x01
    BAD_GENERATION = 0x02
    DISABLED = 0x03
    DISABLED_GEN = 0x04
    NO_MATCH = 0x05
    UNSUPPORTED_OP = 0x06
    UNSUPPORTED_SIZE = 0x07
    AT_INVALID = 0x08
    AT_PERM = 0x09
    AT_ATS_ERROR = 0x0A
    AT_NO_TRANS = 0x0B
    AT_OUT_OF_RANGE = 0x0C
    HOST_POISONED = 0x0D
    HOST_UNSUCCESS_CMPL = 0x0E
    AMO_UNSUPPORTED_OP = 0x0F
    AMO_UNSUPPORTED_DT = 0x10
    AMO_UNSUPPORTED_SIZE = 0x11
    AMO_UNALIGNED = 0x12
    AMO_FP_NAN = 0x13
    AMO_FP_UNDERFLOW = 0x14
    AMO_FP_OVERFLOW = 0x15
    AMO_FP_INEXACT = 0x16
    PERM_VIOLATION = 0x17
    OP_VIOLATION = 0x18
    BAD_INDEX = 0x19
    BAD_PID = 0x1A
    BAD_JOB_ID = 0x1B
    BAD_MKEY = 0x1C
    BAD_ADDR = 0x1D
    CANCELLED = 0x1E
    UNDELIVERABLE = 0x1F
    UNCOR = 0x20
    UNCOR_TRNSNT = 0x21
    TOO_LONG = 0x22
    INITIATOR_ERR = 0x23
    DROPPED = 0x24
    VENDOR_30 = 0x30
    VENDOR_31 = 0x31
    VENDOR_32 = 0x32
    VENDOR_33 = 0x33
    VENDOR_34 = 0x34
    VENDOR_35 = 0x35
    VENDOR_36 = 0x36
    VENDOR_37 = 0x37
    EXTENDED = 0x3E


RETURN_CODE_MEANINGS = {
    ReturnCode.NULL: "no code",
    ReturnCode.OK: "success",
    ReturnCode.BAD_GENERATION: "the resource index has another generation",
    ReturnCode.DISABLED: "the resource index is disabled",
    ReturnCode.DISABLED_GEN: "the resource index is disabled, in this generation",
    ReturnCode.NO_MATCH: "no receive matches the message, and it cannot be kept",
    ReturnCode.UNSUPPORTED_OP: "the target does not know this operation",
    ReturnCode.UNSUPPORTED_SIZE: "the target does not do this operation with that size",
    ReturnCode.AT_INVALID: "address translation: invalid",
    ReturnCode.AT_PERM: "address translation: no permission",
    ReturnCode.AT_ATS_ERROR: "address translation: the service failed",
    ReturnCode.AT_NO_TRANS: "address translation: there is none",
    ReturnCode.AT_OUT_OF_RANGE: "beyond the memory region",
    ReturnCode.HOST_POISONED: "the target's memory is poisoned",
    ReturnCode.HOST_UNSUCCESS_CMPL: "the target's host did not complete the access",
    ReturnCode.AMO_UNSUPPORTED_OP: "the target does not know this atomic operation",
    ReturnCode.AMO_UNSUPPORTED_DT: "the atomic operation does not take this data type",
    ReturnCode.AMO_UNSUPPORTED_SIZE: "the operand is not as long as its data type says",
    ReturnCode.AMO_UNALIGNED: "the atomic operation's address is not aligned",
    ReturnCode.AMO_FP_NAN: "floating point: not a number",
    ReturnCode.AMO_FP_UNDERFLOW: "floating point: underflow",
    ReturnCode.AMO_FP_OVERFLOW: "floating point: overflow",
    ReturnCode.AMO_FP_INEXACT: "floating point: inexact",
    ReturnCode.PERM_VIOLATION: "the memory region is not registered for this access",
    ReturnCode.OP_VIOLATION: "this operation is not permitted here",
    ReturnCode.BAD_INDEX: "nobody has this resource index",
    ReturnCode.BAD_PID: "no process has this PIDonFEP",
    ReturnCode.BAD_JOB_ID: "the job is not known there, or may not do this",
    ReturnCode.BAD_MKEY: "no memory is registered under this key",
    ReturnCode.BAD_ADDR: "not an address of the target",
    ReturnCode.CANCELLED: "cancelled",
    ReturnCode.UNDELIVERABLE: "the peer could not be reached",
    ReturnCode.UNCOR: "an uncorrectable error at the target",
    ReturnCode.UNCOR_TRNSNT: "an uncorrectable error at the target, which may pass",
    ReturnCode.TOO_LONG: "the message is longer than the buffer of its receive",
    ReturnCode.INITIATOR_ERR: "the initiator gave the message up",
    ReturnCode.DROPPED: "the target has let the message go",
    **{code: f"the target gives its vendor's code 0x{code:02x}" for code in ReturnCode if 0x30 <= code <= 0x37},
    ReturnCode.EXTENDED: "the target gives an extended code",
}
"""For users who meet one."""


class AmoOpcode(IntEnum):
    """Atomic memory operations."""

    MIN = 0x00
    MAX = 0x01
    SUM = 0x02
    DIFF = 0x03
    PROD = 0x04
    LOR = 0x05
    LAND = 0x06
    BOR = 0x07
    BAND = 0x08
    LXOR = 0x09
    BXOR = 0x0A
    READ = 0x0B
    WRITE = 0x0C
    CSWAP = 0x0D
    CSWAP_NE = 0x0E
    CSWAP_LE = 0x0F
    CSWAP_LT = 0x10
    CSWAP_GE = 0x11
    CSWAP_GT = 0x12
    MSWAP = 0x13
    INVAL = 0x14


class AmoType(IntEnum):
    """Data types of atomic memory operations."""

    INT8 = 0x00
    UINT8 = 0x01
    INT16 = 0x02
    UINT16 = 0x03
    INT32 = 0x04
    UINT32 = 0x05
    INT64 = 0x06
    UINT64 = 0x07
    INT128 = 0x08
    UINT128 = 0x09
    FLOAT = 0x0A
    DOUBLE = 0x0B
    FLOAT_COMPLEX = 0x0C
    DOUBLE_COMPLEX = 0x0D
    LONG_DOUBLE = 0x0E
    LONG_DOUBLE_COMPLEX = 0x0F
    BF16 = 0x10
    FP16 = 0x11


class Mode(IntEnum):
    """Delivery modes (section 3.5.7)."""

    RUD = 0
    """Reliable unordered: exactly once, in order of arrival, sprayed."""
    ROD = 1
    """Reliable ordered: exactly once and in order, on one path, go-back-N."""
    RUDI = 2
    """Reliable unordered for idempotent operations: at least once, no context."""
    UUD = 3
    """Unreliable unordered: at most once."""
