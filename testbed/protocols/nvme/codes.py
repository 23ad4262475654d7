"""The numbers of the specifications, under the names that those give them.

Sources: NVM Express Base Specification 2.0 ("Base"), NVM Command Set Specification 1.0, NVMe over TCP Transport
Specification 1.0 ("TCP").
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

DISCOVERY_NQN: Final = "nqn.2014-08.org.nvmexpress.discovery"
"""The name under which every target answers who asks what there is."""
DYNAMIC_CNTLID: Final = 0xFFFF
"""In Connect: any controller."""
EVERY_NSID: Final = 0xFFFF_FFFF
SQHD_DISABLED: Final = 0xFFFF
"""SQHD of a completion on a queue without SQ flow control."""


class PduType(IntEnum):
    """PDU-Type. TCP, "PDU Common Header (CH)"."""

    IC_REQ = 0x00
    IC_RESP = 0x01
    H2C_TERM_REQ = 0x02
    C2H_TERM_REQ = 0x03
    CAPSULE_CMD = 0x04
    CAPSULE_RESP = 0x05
    H2C_DATA = 0x06
    C2H_DATA = 0x07
    R2T = 0x09


class PduFlag(IntFlag):
    """FLAGS of the common header."""

    HDGST = 1
    DDGST = 2
    LAST = 4
    SUCCESS = 8


class FatalErrorStatus(IntEnum):
    """FES of H2CTermReq and C2HTermReq. 05h is "R2T limit exceeded" from a host."""

    INVALID_PDU_HEADER_FIELD = 0x01
    PDU_SEQUENCE_ERROR = 0x02
    HEADER_DIGEST_ERROR = 0x03
    DATA_TRANSFER_OUT_OF_RANGE = 0x04
    DATA_TRANSFER_LIMIT_EXCEEDED = 0x05
    UNSUPPORTED_PARAMETER = 0x06


FABRICS_OPCODE: Final = 0x7F


class FabricsType(IntEnum):
    """FCTYPE. Base, "Fabrics Command Type"."""

    PROPERTY_SET = 0x00
    CONNECT = 0x01
    PROPERTY_GET = 0x04
    DISCONNECT = 0x08


class AdminOpcode(IntEnum):
    """Base, "Opcodes for Admin Commands"."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    ABORT = 0x08
    SET_FEATURES = 0x09
    GET_FEATURES = 0x0A
    ASYNC_EVENT_REQUEST = 0x0C
    KEEP_ALIVE = 0x18


class IoOpcode(IntEnum):
    """NVM Command Set, "Opcodes for NVM Commands"."""

    FLUSH = 0x00
    WRITE = 0x01
    READ = 0x02
    WRITE_ZEROES = 0x08
    DATASET_MANAGEMENT = 0x09


class Property(IntEnum):
    """Offsets of a controller's properties. Base, "Property Definition"."""

    CAP = 0x00
    VS = 0x08
    CC = 0x14
    CSTS = 0x1C
    NSSR = 0x20
    CRTO = 0x68


class Cc(IntFlag):
    """Controller Configuration."""

    EN = 1
    SHN = 3 << 14


class Csts(IntFlag):
    """Controller Status."""

    RDY = 1
    CFS = 2
    SHST_OCCURRING = 1 << 2
    SHST_COMPLETE = 2 << 2


class Cns(IntEnum):
    """The structures that Identify is asked for. Base, "CNS Values"."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE_NAMESPACES = 0x02
    NAMESPACE_DESCRIPTORS = 0x03


class Feature(IntEnum):
    """Base, "Feature Identifiers"."""

    NUMBER_OF_QUEUES = 0x07
    ASYNC_EVENT_CONFIGURATION = 0x0B
    KEEP_ALIVE_TIMER = 0x0F


class LogPage(IntEnum):
    """Base, "Log Page Identifiers"."""

    ERROR = 0x01
    SMART = 0x02
    CHANGED_NAMESPACES = 0x04
    DISCOVERY = 0x70


class SglType(IntEnum):
    """SGL identifier: descriptor type and sub type, as they are in one byte. Base, "SGL Descriptor" and its types."""

    IN_CAPSULE = 0x01
    TRANSPORT = 0x5A


DO_NOT_RETRY: Final = 0x4000
"""DNR, in the 15 bits above the phase of a completion's last word."""


class Status(IntEnum):
    """SCT and SC in one number, SCT * 100h + SC. Base, "Generic Command Status Values",
    "Command Specific Status Values", "Media and Data Integrity Errors"."""

    SUCCESS = 0x000
    INVALID_COMMAND_OPCODE = 0x001
    INVALID_FIELD_IN_COMMAND = 0x002
    COMMAND_ID_CONFLICT = 0x003
    DATA_TRANSFER_ERROR = 0x004
    INTERNAL_ERROR = 0x006
    COMMAND_ABORT_REQUESTED = 0x007
    INVALID_NAMESPACE_OR_FORMAT = 0x00B
    COMMAND_SEQUENCE_ERROR = 0x00C
    DATA_SGL_LENGTH_INVALID = 0x00F
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011
    SGL_OFFSET_INVALID = 0x016
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01A
    NAMESPACE_IS_WRITE_PROTECTED = 0x020
    TRANSIENT_TRANSPORT_ERROR = 0x022
    LBA_OUT_OF_RANGE = 0x080
    CAPACITY_EXCEEDED = 0x081
    NAMESPACE_NOT_READY = 0x082
    INVALID_QUEUE_IDENTIFIER = 0x101
    INVALID_QUEUE_SIZE = 0x102
    ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED = 0x105
    INVALID_LOG_PAGE = 0x109
    FEATURE_NOT_CHANGEABLE = 0x10E
    CONNECT_INCOMPATIBLE_FORMAT = 0x180
    CONNECT_CONTROLLER_BUSY = 0x181
    CONNECT_INVALID_PARAMETERS = 0x182
    CONNECT_INVALID_HOST = 0x184
    INVALID_QUEUE_TYPE = 0x185
    WRITE_FAULT = 0x280
    UNRECOVERED_READ_ERROR = 0x281


def status_name(status: int) -> str:
    """The specification's name of a status, DNR and other flags left aside; its number where it has none here."""
    code = status & 0x7FF
    try:
        return Status(code).name.replace("_", " ").title()
    except ValueError:
        return f"status {code:03x}h"
