"""The atomic operations of libfabric, and which of UET's each is.

Source: fi_atomic(3); UE Specification 1.0, tables 3-21 and 3-22.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.atomics import COMPARE_OPCODES
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType

_OPCODES: Final = (
    AmoOpcode.MIN,
    AmoOpcode.MAX,
    AmoOpcode.SUM,
    AmoOpcode.PROD,
    AmoOpcode.LOR,
    AmoOpcode.LAND,
    AmoOpcode.BOR,
    AmoOpcode.BAND,
    AmoOpcode.LXOR,
    AmoOpcode.BXOR,
    AmoOpcode.READ,
    AmoOpcode.WRITE,
    AmoOpcode.CSWAP,
    AmoOpcode.CSWAP_NE,
    AmoOpcode.CSWAP_LE,
    AmoOpcode.CSWAP_LT,
    AmoOpcode.CSWAP_GE,
    AmoOpcode.CSWAP_GT,
    AmoOpcode.MSWAP,
)
"""By the number that libfabric has for each (enum fi_op, fi_atomic(3))."""
_DATATYPES: Final = (
    AmoType.INT8,
    AmoType.UINT8,
    AmoType.INT16,
    AmoType.UINT16,
    AmoType.INT32,
    AmoType.UINT32,
    AmoType.INT64,
    AmoType.UINT64,
    AmoType.FLOAT,
    AmoType.DOUBLE,
    AmoType.FLOAT_COMPLEX,
    AmoType.DOUBLE_COMPLEX,
)
"""By the number that libfabric has for each (enum fi_datatype)."""


def decode_atomic(op: int, datatype: int, *, compares: bool) -> tuple[AmoOpcode, AmoType]:
    """Return the operation and the data type of libfabric's numbers; `compares`: there is an operand to compare.

    Raises `UsageError` for what there is not.
    """
    if op >= len(_OPCODES) or datatype >= len(_DATATYPES) or compares != (_OPCODES[op] in COMPARE_OPCODES):
        raise UsageError(f"no atomic operation {op} on data type {datatype}")
    return _OPCODES[op], _DATATYPES[datatype]
