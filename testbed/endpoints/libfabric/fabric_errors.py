"""The numbers that libfabric has for failures (fi_errno(3)), and which of them a UET return code is."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from testbed.protocols.uet.packets.codes import ReturnCode


class LibfabricError(IntEnum):
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


_ERRORS: Final[Mapping[ReturnCode, LibfabricError]] = MappingProxyType(
    {
        ReturnCode.NO_MATCH: LibfabricError.NO_MESSAGE,
        ReturnCode.UNSUPPORTED_OP: LibfabricError.NOT_SUPPORTED,
        ReturnCode.UNSUPPORTED_SIZE: LibfabricError.NOT_SUPPORTED,
        ReturnCode.AT_PERM: LibfabricError.ACCESS,
        ReturnCode.AT_OUT_OF_RANGE: LibfabricError.INVALID,
        ReturnCode.HOST_UNSUCCESS_CMPL: LibfabricError.FAULT,
        ReturnCode.AMO_UNSUPPORTED_OP: LibfabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNSUPPORTED_DT: LibfabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNSUPPORTED_SIZE: LibfabricError.NOT_SUPPORTED,
        ReturnCode.AMO_UNALIGNED: LibfabricError.INVALID,
        ReturnCode.PERM_VIOLATION: LibfabricError.ACCESS,
        ReturnCode.OP_VIOLATION: LibfabricError.ACCESS,
        ReturnCode.BAD_INDEX: LibfabricError.UNREACHABLE,
        ReturnCode.BAD_PID: LibfabricError.UNREACHABLE,
        ReturnCode.BAD_JOB_ID: LibfabricError.ACCESS,
        ReturnCode.BAD_MKEY: LibfabricError.NO_KEY,
        ReturnCode.CANCELLED: LibfabricError.CANCELLED,
        ReturnCode.UNDELIVERABLE: LibfabricError.UNREACHABLE,
        ReturnCode.TOO_LONG: LibfabricError.TRUNCATED,
    }
)


def error_of(code: ReturnCode) -> int:
    """Return libfabric's number for a return code; 0 for success."""
    return 0 if code is ReturnCode.OK else _ERRORS.get(code, LibfabricError.IO)
