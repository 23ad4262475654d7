"""Atomic memory operations (AMOs): what each does to each data type.

Source: UE Specification 1.0, tables 3-21 (opcodes) and 3-22 (data types), which name libfabric's operations; where the
specification's text was not at hand, their meaning is that of libfabric's fi_atomic(3):

| opcode | new value of the target (t) from the operand (o) and, for the last three rows, the compare operand (c) |
|---|---|
| MIN, MAX | o where o < t (o > t), else t |
| SUM, DIFF, PROD | t + o, t - o, t * o |
| LOR, LAND, LXOR | 1 or 0, of t and o as "not zero" |
| BOR, BAND, BXOR | bit by bit |
| READ, WRITE | t; o |
| CSWAP, CSWAP_NE | o where c == t (c != t), else t |
| CSWAP_LE, _LT, _GE, _GT | o where c <= t (c < t, c >= t, c > t), else t |
| MSWAP | the bits of o where c has ones, else those of t |

* Values lie in memory little-endian, as on every host this runs on, and operands travel as the bytes of the initiator's
  memory: neither end swaps them.
* Integers wrap. Signed integers are two's complement.
* Floating point: round to nearest even, overflow gives an infinity, subnormals are kept. FLOAT, FP16 and FLOAT_COMPLEX
  are computed in double precision and rounded once at the end, which for one sum, difference or product of reals is the
  correctly rounded result; BF16 is computed as FLOAT and then rounded to nearest even. No AMO_FP_* code is ever
  reported.
* A comparison with a NaN is false, as in C: MIN and MAX leave the target where either side is a NaN, CSWAP never swaps
  and CSWAP_NE always does. 0.0 equals -0.0. What is left or swapped in is left or swapped in bit for bit.
* Complex numbers know SUM, DIFF, PROD (the plain formula), READ, WRITE, CSWAP and CSWAP_NE. Bitwise operations and
  MSWAP are for integers alone. INVAL (of a cache) and vendors' opcodes are unsupported; so is LONG_DOUBLE, whose format
  is the host's affair.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from testbed.protocols.errors import TransportError
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, ReturnCode


class Amo(NamedTuple):
    """An atomic memory operation, as its initiator asks for it."""

    opcode: AmoOpcode
    datatype: AmoType
    operand: bytes | bytearray | memoryview
    """One element or several in a row, little-endian."""
    compare: bytes = b""
    """The value compared (CSWAP family), or the mask (MSWAP)."""


class AtomicRefused(TransportError):
    """The target is left as it was; `return_code` is what the response says."""

    def __init__(self, return_code: ReturnCode, reason: str) -> None:
        super().__init__(f"{return_code.name}: {reason}")
        self.return_code = return_code
        self.reason = reason


class _Kind(IntEnum):
    UNSIGNED = 0
    SIGNED = 1
    REAL = 2
    COMPLEX = 3


class _Layout(NamedTuple):
    kind: _Kind
    size: int
    """Bytes of an element."""
    code: str
    """`struct` code of a scalar; "" where struct has none (128-bit integers, BF16)."""
    alignment: int
    """That of a scalar: a complex number is aligned as its parts are, as in C."""


_LAYOUTS: dict[int, _Layout] = {
    AmoType.INT8: _Layout(_Kind.SIGNED, 1, "b", 1),
    AmoType.UINT8: _Layout(_Kind.UNSIGNED, 1, "B", 1),
    AmoType.INT16: _Layout(_Kind.SIGNED, 2, "h", 2),
    AmoType.UINT16: _Layout(_Kind.UNSIGNED, 2, "H", 2),
    AmoType.INT32: _Layout(_Kind.SIGNED, 4, "i", 4),
    AmoType.UINT32: _Layout(_Kind.UNSIGNED, 4, "I", 4),
    AmoType.INT64: _Layout(_Kind.SIGNED, 8, "q", 8),
    AmoType.UINT64: _Layout(_Kind.UNSIGNED, 8, "Q", 8),
    AmoType.INT128: _Layout(_Kind.SIGNED, 16, "", 16),
    AmoType.UINT128: _Layout(_Kind.UNSIGNED, 16, "", 16),
    AmoType.FLOAT: _Layout(_Kind.REAL, 4, "f", 4),
    AmoType.DOUBLE: _Layout(_Kind.REAL, 8, "d", 8),
    AmoType.FLOAT_COMPLEX: _Layout(_Kind.COMPLEX, 8, "f", 4),
    AmoType.DOUBLE_COMPLEX: _Layout(_Kind.COMPLEX, 16, "d", 8),
    AmoType.BF16: _Layout(_Kind.REAL, 2, "", 2),
    AmoType.FP16: _Layout(_Kind.REAL, 2, "e", 2),
}

COMPARE_OPCODES: frozenset[int] = frozenset(
    (
        AmoOpcode.CSWAP,
        AmoOpcode.CSWAP_NE,
        AmoOpcode.CSWAP_LE,
        AmoOpcode.CSWAP_LT,
        AmoOpcode.CSWAP_GE,
        AmoOpcode.CSWAP_GT,
        AmoOpcode.MSWAP,
    )
)
"""Operations with a compare operand (for MSWAP: the mask)."""

_BITWISE: frozenset[int] = frozenset((AmoOpcode.BOR, AmoOpcode.BAND, AmoOpcode.BXOR, AmoOpcode.MSWAP))
_ARITHMETIC: frozenset[int] = frozenset((AmoOpcode.SUM, AmoOpcode.DIFF, AmoOpcode.PROD))
_LOGICAL: frozenset[int] = frozenset((AmoOpcode.LOR, AmoOpcode.LAND, AmoOpcode.LXOR))
_MIN_MAX: frozenset[int] = frozenset((AmoOpcode.MIN, AmoOpcode.MAX))
_EQUALITY: frozenset[int] = frozenset((AmoOpcode.CSWAP, AmoOpcode.CSWAP_NE))
_LESS: frozenset[int] = frozenset((AmoOpcode.MIN, AmoOpcode.CSWAP_LT))
_GREATER: frozenset[int] = frozenset((AmoOpcode.MAX, AmoOpcode.CSWAP_GT))
_ALL: frozenset[int] = frozenset(AmoOpcode) - {AmoOpcode.INVAL}
_DEFINED: dict[int, frozenset[int]] = {
    _Kind.UNSIGNED: _ALL,
    _Kind.SIGNED: _ALL,
    _Kind.REAL: _ALL - _BITWISE,
    _Kind.COMPLEX: _ARITHMETIC | _EQUALITY | {AmoOpcode.READ, AmoOpcode.WRITE},
}


def apply(
    opcode: int,
    datatype: int,
    target: memoryview,
    operand: bytes | memoryview,
    compare: bytes | memoryview = b"",
    address: int = 0,
) -> bytes:
    """Apply an operation to each element of `target`; returns its bytes from before, the answer to a fetching one.

    `opcode` is an `AmoOpcode`, `datatype` an `AmoType`, or a number from the wire that may be neither. `target` is a
    row of bytes, writable unless the opcode is READ. `operand` is as long as it, or empty for READ, which ignores it;
    for the CSWAP family and MSWAP it is what is swapped in, and `compare`, of the same length, what is compared (the
    mask): of the 16-byte fields of the extension header as many as an element has. `address` is where `target` begins,
    or its offset in a region whose start is aligned.

    Raises `AtomicRefused`, in this order: AMO_UNSUPPORTED_DT, AMO_UNSUPPORTED_OP (also where the type does not know the
    operation), AMO_UNSUPPORTED_SIZE (no whole number of elements, none at all, unequal lengths), AMO_UNALIGNED.
    """
    layout = _layout_of(datatype)
    kind = layout.kind
    if opcode not in _DEFINED[kind]:
        raise AtomicRefused(ReturnCode.AMO_UNSUPPORTED_OP, f"operation {opcode:#x} on {AmoType(datatype).name}")
    length = len(target)
    if length == 0 or length % layout.size:
        raise AtomicRefused(
            ReturnCode.AMO_UNSUPPORTED_SIZE, f"{length} bytes are not elements of {layout.size} bytes each"
        )
    if len(operand) != length and not (opcode == AmoOpcode.READ and not len(operand)):
        raise AtomicRefused(ReturnCode.AMO_UNSUPPORTED_SIZE, f"{len(operand)} bytes of operand for {length}")
    if opcode in COMPARE_OPCODES and len(compare) != length:
        raise AtomicRefused(ReturnCode.AMO_UNSUPPORTED_SIZE, f"{len(compare)} bytes to compare with {length}")
    if address % layout.alignment:
        raise AtomicRefused(ReturnCode.AMO_UNALIGNED, f"address {address:#x} of {AmoType(datatype).name}")

    old = bytes(target)
    if opcode == AmoOpcode.READ:
        return old
    if opcode == AmoOpcode.WRITE:
        target[:] = bytes(operand)
    elif opcode in _BITWISE:
        target[:] = _bitwise(opcode, old, operand, compare)
    elif opcode in _ARITHMETIC:
        if kind == _Kind.COMPLEX:
            target[:] = _complex_arithmetic(opcode, layout, old, operand)
        elif kind == _Kind.REAL:
            target[:] = _real_arithmetic(opcode, layout, old, operand)
        else:
            target[:] = _integer_arithmetic(opcode, layout, old, operand)
    elif opcode in _LOGICAL:
        target[:] = _logical(opcode, layout, old, operand)
    else:
        target[:] = _select(opcode, layout, old, operand, compare)
    return old


def _layout_of(datatype: int) -> _Layout:
    layout = _LAYOUTS.get(datatype)
    if layout is None:
        raise AtomicRefused(ReturnCode.AMO_UNSUPPORTED_DT, f"data type {datatype:#x}")
    return layout


def _read_integers(layout: _Layout, raw: bytes | memoryview, signed: bool) -> Sequence[int]:
    if layout.code:
        code = layout.code.lower() if signed else layout.code.upper()
        return struct.unpack(f"<{len(raw) // layout.size}{code}", raw)
    return [int.from_bytes(raw[at : at + 16], "little", signed=signed) for at in range(0, len(raw), 16)]


def _write_integers(layout: _Layout, values: Sequence[int]) -> bytes:
    """`values` are not negative and fit."""
    if layout.code:
        return struct.pack(f"<{len(values)}{layout.code.upper()}", *values)
    return b"".join([value.to_bytes(16, "little") for value in values])


def _read_reals(layout: _Layout, raw: bytes | memoryview) -> Sequence[float]:
    """All scalars: two for each complex number."""
    if layout.code:
        return struct.unpack(f"<{len(raw) // struct.calcsize(layout.code)}{layout.code}", raw)
    # BF16 is the upper half of a FLOAT.
    halves = struct.unpack(f"<{len(raw) // 2}H", raw)
    return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *[half << 16 for half in halves]))


def _write_reals(layout: _Layout, values: Sequence[float]) -> bytes:
    if layout.code:
        return _round_reals(layout.code, values)
    words = struct.unpack(f"<{len(values)}I", _round_reals("f", values))
    return struct.pack(f"<{len(words)}H", *[_float_to_bf16(word) for word in words])


def _round_reals(code: str, values: Sequence[float]) -> bytes:
    try:
        return struct.pack(f"<{len(values)}{code}", *values)
    except OverflowError:  # struct refuses what rounds to an infinity
        return b"".join([_round_real(code, value) for value in values])


def _round_real(code: str, value: float) -> bytes:
    try:
        return struct.pack(f"<{code}", value)
    except OverflowError:
        return struct.pack(f"<{code}", float("inf") if value > 0 else float("-inf"))


def _float_to_bf16(word: int) -> int:
    """Round the bits of a FLOAT to the nearest BF16, ties to even."""
    if word & 0x7FFF_FFFF > 0x7F80_0000:  # a NaN out of arithmetic is quiet: a bit of the upper half says so
        return word >> 16
    return word + 0x7FFF + (word >> 16 & 1) >> 16


def _bitwise(opcode: int, old: bytes, operand: bytes | memoryview, compare: bytes | memoryview) -> bytes:
    """Element boundaries do not matter, so the whole row is one number."""
    target = int.from_bytes(old, "little")
    value = int.from_bytes(operand, "little")
    if opcode == AmoOpcode.BOR:
        target |= value
    elif opcode == AmoOpcode.BAND:
        target &= value
    elif opcode == AmoOpcode.BXOR:
        target ^= value
    else:
        mask = int.from_bytes(compare, "little")
        target = value & mask | target & ~mask
    return target.to_bytes(len(old), "little")


def _integer_arithmetic(opcode: int, layout: _Layout, old: bytes, operand: bytes | memoryview) -> bytes:
    """Modulo 2**bits signed and unsigned are the same, so everything is taken as unsigned."""
    targets = _read_integers(layout, old, False)
    values = _read_integers(layout, operand, False)
    mask = (1 << 8 * layout.size) - 1
    if opcode == AmoOpcode.SUM:
        return _write_integers(layout, [t + o & mask for t, o in zip(targets, values, strict=True)])
    if opcode == AmoOpcode.DIFF:
        return _write_integers(layout, [t - o & mask for t, o in zip(targets, values, strict=True)])
    return _write_integers(layout, [t * o & mask for t, o in zip(targets, values, strict=True)])


def _real_arithmetic(opcode: int, layout: _Layout, old: bytes, operand: bytes | memoryview) -> bytes:
    targets = _read_reals(layout, old)
    values = _read_reals(layout, operand)
    if opcode == AmoOpcode.SUM:
        return _write_reals(layout, [t + o for t, o in zip(targets, values, strict=True)])
    if opcode == AmoOpcode.DIFF:
        return _write_reals(layout, [t - o for t, o in zip(targets, values, strict=True)])
    return _write_reals(layout, [t * o for t, o in zip(targets, values, strict=True)])


def _complex_arithmetic(opcode: int, layout: _Layout, old: bytes, operand: bytes | memoryview) -> bytes:
    if opcode != AmoOpcode.PROD:
        return _real_arithmetic(opcode, layout, old, operand)
    targets = _read_reals(layout, old)
    values = _read_reals(layout, operand)
    products: list[float] = []
    for at in range(0, len(targets), 2):
        a, b, c, d = targets[at], targets[at + 1], values[at], values[at + 1]
        products.append(a * c - b * d)
        products.append(a * d + b * c)
    return _write_reals(layout, products)


def _logical(opcode: int, layout: _Layout, old: bytes, operand: bytes | memoryview) -> bytes:
    """A NaN is not zero."""
    targets: Sequence[float]
    values: Sequence[float]
    if layout.kind == _Kind.REAL:
        targets = _read_reals(layout, old)
        values = _read_reals(layout, operand)
    else:
        targets = _read_integers(layout, old, False)
        values = _read_integers(layout, operand, False)
    pairs = zip(targets, values, strict=True)
    if opcode == AmoOpcode.LOR:
        truths = [t != 0 or o != 0 for t, o in pairs]
    elif opcode == AmoOpcode.LAND:
        truths = [t != 0 and o != 0 for t, o in pairs]
    else:
        truths = [(t != 0) != (o != 0) for t, o in pairs]
    if layout.kind == _Kind.REAL:
        return _write_reals(layout, [1.0 if truth else 0.0 for truth in truths])
    return _write_integers(layout, [1 if truth else 0 for truth in truths])


def _select(
    opcode: int, layout: _Layout, old: bytes, operand: bytes | memoryview, compare: bytes | memoryview
) -> bytes:
    """MIN, MAX and the CSWAP family: each element is that of the operand or stays, as a comparison with the target
    says."""
    against = operand if opcode in _MIN_MAX else compare
    targets: Sequence[float]
    others: Sequence[float]
    if layout.kind >= _Kind.REAL:
        targets = _read_reals(layout, old)
        others = _read_reals(layout, against)
    else:
        signed = layout.kind == _Kind.SIGNED
        targets = _read_integers(layout, old, signed)
        others = _read_integers(layout, against, signed)
    taken = _compare(opcode, layout.kind == _Kind.COMPLEX, targets, others)
    size = layout.size
    new = bytearray(old)
    for index, take in enumerate(taken):
        if take:
            new[index * size : (index + 1) * size] = operand[index * size : (index + 1) * size]
    return bytes(new)


def _compare(opcode: int, paired: bool, targets: Sequence[float], others: Sequence[float]) -> list[bool]:
    """For each element whether the operand takes its place. Of complex numbers, both parts must be equal."""
    pairs = zip(others, targets, strict=True)
    if opcode in _EQUALITY:
        equal = [c == t for c, t in pairs]
        if paired:
            equal = [equal[at] and equal[at + 1] for at in range(0, len(equal), 2)]
        return equal if opcode == AmoOpcode.CSWAP else [not same for same in equal]
    if opcode in _LESS:
        return [c < t for c, t in pairs]
    if opcode in _GREATER:
        return [c > t for c, t in pairs]
    if opcode == AmoOpcode.CSWAP_LE:
        return [c <= t for c, t in pairs]
    return [c >= t for c, t in pairs]
