"""The numbers that libfabric has for failures (fi_errno(3)), and which of them a UET return code is."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from testbed.protocols.uet.packets.codes import ReturnCode


class FabricError(IntEnum):
    """Errors of <rdma/fi_errno.h>: those of the system keep their number, libfabric's own begin at 256."""

    NO_ENTRY = errno.ENOENT
    IO = errno.EIO
    AGAIN = errno.EAGAIN
    NO_MEMORY = errno.ENOMEM
    ACCESS = errno.EACCES
    FAULT = errno.EFAULT
    BUSY = errno.EBUSY
    INVALID = errno.EINVAL
    NO_DEVICE = errno.ENODEV
    NO_MESSAGE = errno.ENOMSG
    PROTOCOL = errno.EPROTO
    NOT_SUPPORTED = errno.EOPNOTSUPP
    CANCELLED = errno.ECANCELED
    UNREACHABLE = errno.EHOSTUNREACH
    KEY_REJECTED = errno.EKEYREJECTED
    TRUNCATED = 265
    NO_KEY = 266


_ERRORS: Final[Mapping[ReturnCode, FabricError]] = MappingProxyType(
    {
        ReturnCode.NO_MATCH: FabricError.NO_MESSAGE,
        ReturnCode.UNSUPPORTED_OP: FabricError.NOT_SUPPORTED,
        ReturnCode.UNSUPPORTED_SIZE: FabricError.NOT_SUPPORTED,
        ReturnCode.AT_PERM: FabricError.ACCESS,
        ReturnCode.AT_OUT_OF_RANGE: FabricError.INVALID,
        ReturnCode.HOST_UNSUCCESS_CMPL: FabricError.FAULT,
        ReturnCode.AMO_UNSUPPORTED_OP: FabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNSUPPORTED_DT: FabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNSUPPORTED_SIZE: FabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNALIGNED: FabricError.INVALID,
        ReturnCode.PERM_VIOLATION: FabricError.ACCESS,
        ReturnCode.OP_VIOLATION: FabricError.ACCESS,
        ReturnCode.BAD_INDEX: FabricError.UNREACHABLE,
        ReturnCode.BAD_PID: FabricError.UNREACHABLE,
        ReturnCode.BAD_JOB_ID: FabricError.ACCESS,
        ReturnCode.BAD_MKEY: FabricError.NO_KEY,
        ReturnCode.CANCELLED: FabricError.CANCELLED,
        ReturnCode.UNDELIVERABLE: FabricError.UNREACHABLE,
        ReturnCode.TOO_LONG: FabricError.TRUNCATED,
    }
)


def error_of(code: ReturnCode) -> int:
    """Return libfabric's number for a return code; 0 for success."""
    return 0 if code is ReturnCode.OK else _ERRORS.get(code, FabricError.IO)
