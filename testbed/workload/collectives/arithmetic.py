"""Arrays of float32 and bfloat16: rounding and adding.

numpy has no bfloat16: such an array is `uint16` and holds the upper half of each float32's bits (Intel, "BFLOAT16 -
Hardware Numerics Definition", 2018). Sums are taken in float32 and rounded to nearest, ties to even, after every
addition, as a GPU without native bfloat16 addition does (nccl-tests, verifiable.cu, `ReduceSum`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.workload.collectives.datatype import DataType

Array = NDArray[Any]
"""One-dimensional: `float32`, or `uint16` for bfloat16."""


def storage(datatype: DataType) -> np.dtype[Any]:
    """numpy's type of an array of `datatype`."""
    return np.dtype(np.float32) if datatype is DataType.FLOAT32 else np.dtype(np.uint16)


def encode_bfloat16(values: Array) -> Array:
    """The bits of each float32 rounded to bfloat16, nearest, ties to even; a NaN stays a (quiet) NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def decode_bfloat16(bits: Array) -> Array:
    """The float32 values of bfloat16 bits, exactly."""
    return (np.ascontiguousarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def encode(values: Array, datatype: DataType) -> Array:
    """float32 or float64 values as an array of `datatype`, rounded to nearest."""
    if datatype is DataType.FLOAT32:
        return np.asarray(values, dtype=np.float32)
    return encode_bfloat16(np.asarray(values, dtype=np.float32))


def decode(array: Array, datatype: DataType) -> Array:
    """An array of `datatype` as float32 values, exactly."""
    return array if datatype is DataType.FLOAT32 else decode_bfloat16(array)


def add(a: Array, b: Array, datatype: DataType) -> Array:
    """`a + b`, element by element, in the precision of `datatype`."""
    if datatype is DataType.FLOAT32:
        return np.add(a, b, dtype=np.float32)
    return encode_bfloat16(decode_bfloat16(a) + decode_bfloat16(b))
