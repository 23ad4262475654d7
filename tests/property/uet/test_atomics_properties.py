"""Atomic operations against numpy and, for 128 bits, BF16 and complex products, against exact arithmetic."""

import operator
import struct
from collections.abc import Callable
from fractions import Fraction
from math import isfinite

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from testbed.protocols.uet.atomics import COMPARE_OPCODES, apply
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType

CHECKED = settings(max_examples=200, deadline=None)
NUMPY_INTEGERS = {
    AmoType.INT8: "<i1",
    AmoType.UINT8: "<u1",
    AmoType.INT16: "<i2",
    AmoType.UINT16: "<u2",
    AmoType.INT32: "<i4",
    AmoType.UINT32: "<u4",
    AmoType.INT64: "<i8",
    AmoType.UINT64: "<u8",
}
NUMPY_REALS = {AmoType.FLOAT: "<f4", AmoType.DOUBLE: "<f8", AmoType.FP16: "<f2"}
SIZES = {datatype: np.dtype(code).itemsize for datatype, code in (NUMPY_INTEGERS | NUMPY_REALS).items()}
SIZES |= dict.fromkeys((AmoType.INT128, AmoType.UINT128, AmoType.DOUBLE_COMPLEX), 16)
COMPARISONS: dict[AmoOpcode, Callable[[object, object], object]] = {
    AmoOpcode.CSWAP: operator.eq,
    AmoOpcode.CSWAP_NE: operator.ne,
    AmoOpcode.CSWAP_LE: operator.le,
    AmoOpcode.CSWAP_LT: operator.lt,
    AmoOpcode.CSWAP_GE: operator.ge,
    AmoOpcode.CSWAP_GT: operator.gt,
}
ARITHMETIC: dict[AmoOpcode, Callable[[Fraction, Fraction], Fraction]] = {
    AmoOpcode.SUM: operator.add,
    AmoOpcode.DIFF: operator.sub,
    AmoOpcode.PROD: operator.mul,
}
INTEGER_OPCODES = [opcode for opcode in AmoOpcode if opcode is not AmoOpcode.INVAL]
REAL_OPCODES = [
    opcode
    for opcode in INTEGER_OPCODES
    if opcode not in {AmoOpcode.BOR, AmoOpcode.BAND, AmoOpcode.BXOR, AmoOpcode.MSWAP}
]


@st.composite
def rows(draw: DrawFn, datatype: AmoType) -> tuple[bytes, bytes, bytes]:
    """Target, operand and compare operand, often with equal and extreme elements."""
    size = SIZES[datatype]
    count = draw(st.integers(1, 4))
    special = [bytes(size), b"\xff" * size, b"\xff" * (size - 1) + b"\x7f", bytes(size - 1) + b"\x80"]
    element = st.binary(min_size=size, max_size=size) | st.sampled_from(special)
    pool = draw(st.lists(element, min_size=1, max_size=3))
    return tuple(b"".join(draw(st.sampled_from(pool)) for _ in range(count)) for _ in range(3))  # type: ignore[return-value]


def run(opcode: AmoOpcode, datatype: AmoType, target: bytes, operand: bytes, compare: bytes) -> bytes:
    memory = bytearray(target)
    old = apply(opcode, datatype, memoryview(memory), operand, compare if opcode in COMPARE_OPCODES else b"")
    assert old == target
    return bytes(memory)


def numpy_model(opcode: AmoOpcode, t: np.ndarray, o: np.ndarray, c: np.ndarray) -> np.ndarray:
    match opcode:
        case AmoOpcode.MIN:
            return np.where(o < t, o, t)
        case AmoOpcode.MAX:
            return np.where(o > t, o, t)
        case AmoOpcode.SUM:
            return t + o
        case AmoOpcode.DIFF:
            return t - o
        case AmoOpcode.PROD:
            return t * o
        case AmoOpcode.LOR:
            return np.logical_or(t, o).astype(t.dtype)
        case AmoOpcode.LAND:
            return np.logical_and(t, o).astype(t.dtype)
        case AmoOpcode.LXOR:
            return np.logical_xor(t, o).astype(t.dtype)
        case AmoOpcode.BOR:
            return t | o
        case AmoOpcode.BAND:
            return t & o
        case AmoOpcode.BXOR:
            return t ^ o
        case AmoOpcode.READ:
            return t
        case AmoOpcode.WRITE:
            return o
        case AmoOpcode.MSWAP:
            return (o & c) | (t & ~c)
        case _:
            return np.where(COMPARISONS[opcode](c, t), o, t)


@CHECKED
@given(st.data(), st.sampled_from(INTEGER_OPCODES), st.sampled_from(sorted(NUMPY_INTEGERS)))
def test_integers_are_those_of_numpy(data: st.DataObject, opcode: AmoOpcode, datatype: AmoType) -> None:
    target, operand, compare = data.draw(rows(datatype))
    t, o, c = (np.frombuffer(row, NUMPY_INTEGERS[datatype]) for row in (target, operand, compare))
    assert run(opcode, datatype, target, operand, compare) == numpy_model(opcode, t, o, c).tobytes()


@CHECKED
@given(st.data(), st.sampled_from(REAL_OPCODES), st.sampled_from(sorted(NUMPY_REALS)))
def test_reals_are_those_of_numpy(data: st.DataObject, opcode: AmoOpcode, datatype: AmoType) -> None:
    target, operand, compare = data.draw(rows(datatype))
    dtype = np.dtype(NUMPY_REALS[datatype])
    t, o, c = (np.frombuffer(row, dtype) for row in (target, operand, compare))
    with np.errstate(all="ignore"):
        expected = numpy_model(opcode, t, o, c)
    after = run(opcode, datatype, target, operand, compare)
    if opcode in ARITHMETIC:  # which NaN comes out of arithmetic is the machine's affair
        found = np.frombuffer(after, dtype)
        np.testing.assert_array_equal(found, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))
    else:
        assert after == expected.astype(dtype).tobytes()


def modular(value: int, signed: bool) -> int:
    value %= 1 << 128
    return value - (1 << 128) if signed and value >> 127 else value


@CHECKED
@given(st.data(), st.sampled_from(INTEGER_OPCODES), st.booleans())
def test_128_bit_integers_are_exact_and_wrap(data: st.DataObject, opcode: AmoOpcode, signed: bool) -> None:
    datatype = AmoType.INT128 if signed else AmoType.UINT128
    triple = data.draw(rows(datatype))
    columns = [
        [int.from_bytes(row[at : at + 16], "little", signed=signed) for at in range(0, len(row), 16)] for row in triple
    ]
    after = run(opcode, datatype, *triple)
    for index, (t, o, c) in enumerate(zip(*columns, strict=True)):
        expected = {
            AmoOpcode.MIN: min(t, o),
            AmoOpcode.MAX: max(t, o),
            AmoOpcode.SUM: t + o,
            AmoOpcode.DIFF: t - o,
            AmoOpcode.PROD: t * o,
            AmoOpcode.LOR: int(bool(t) or bool(o)),
            AmoOpcode.LAND: int(bool(t) and bool(o)),
            AmoOpcode.LXOR: int(bool(t) is not bool(o)),
            AmoOpcode.BOR: t | o,
            AmoOpcode.BAND: t & o,
            AmoOpcode.BXOR: t ^ o,
            AmoOpcode.READ: t,
            AmoOpcode.WRITE: o,
            AmoOpcode.MSWAP: t ^ ((t ^ o) & c),
        }.get(opcode)
        if expected is None:
            expected = o if COMPARISONS[opcode](c, t) else t
        found = int.from_bytes(after[16 * index : 16 * index + 16], "little", signed=signed)
        assert found == modular(expected, signed)


def bf16_value(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def nearest_bf16(value: Fraction) -> int:
    """Bits of the BF16 nearest to `value`, by bisection of the finite magnitudes; infinity stands for 2**128."""
    sign, magnitude = (0x8000, -value) if value < 0 else (0, value)

    def magnitude_of(bits: int) -> Fraction:
        return Fraction(2) ** 128 if bits == 0x7F80 else Fraction(bf16_value(bits))

    low, high = 0, 0x7F80
    if magnitude >= magnitude_of(high):
        return sign | high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if magnitude_of(middle) <= magnitude else (low, middle)
    below, above = magnitude - magnitude_of(low), magnitude_of(high) - magnitude
    nearer = low if below < above else high if above < below else low + low % 2
    return sign | nearer


HALVES = (
    st.integers(0, 0xFFFF) | st.integers(0x3F00, 0x4400) | st.sampled_from([0x7F7F, 0xFF7F, 0x7B00, 0x0001, 0x8080])
)


@CHECKED
@given(HALVES, HALVES, st.sampled_from(sorted(ARITHMETIC)))
def test_bf16_is_rounded_to_the_nearest(target: int, operand: int, opcode: AmoOpcode) -> None:
    left, right = bf16_value(target), bf16_value(operand)
    assume(isfinite(left) and isfinite(right))
    exact = ARITHMETIC[opcode](Fraction(left), Fraction(right))
    # Below the normal numbers a product is rounded twice, first as a FLOAT.
    assume(opcode is not AmoOpcode.PROD or exact == 0 or abs(exact) >= Fraction(2) ** -126)
    after = run(opcode, AmoType.BF16, target.to_bytes(2, "little"), operand.to_bytes(2, "little"), b"")
    found = int.from_bytes(after, "little")
    if exact == 0:
        assert found & 0x7FFF == 0
    else:
        assert found == nearest_bf16(exact)


@CHECKED
@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.sampled_from(sorted(COMPARISONS)))
def test_bf16_compares_as_the_floats_that_its_values_are(
    target: int, swap: int, compare: int, opcode: AmoOpcode
) -> None:
    for against in (compare, target):
        rows_of_two = [bits.to_bytes(2, "little") for bits in (target, swap, against)]
        swapped = COMPARISONS[opcode](bf16_value(against), bf16_value(target))
        assert run(opcode, AmoType.BF16, *rows_of_two) == rows_of_two[1 if swapped else 0]


@CHECKED
@given(st.lists(st.integers(-(1 << 11), 1 << 11), min_size=4, max_size=4), st.sampled_from(sorted(ARITHMETIC)))
def test_complex_arithmetic_is_exact_where_it_can_be(parts: list[int], opcode: AmoOpcode) -> None:
    a, b, c, d = parts
    expected = {
        AmoOpcode.SUM: (a + c, b + d),
        AmoOpcode.DIFF: (a - c, b - d),
        AmoOpcode.PROD: (a * c - b * d, a * d + b * c),
    }[opcode]
    for datatype, code in ((AmoType.FLOAT_COMPLEX, "f"), (AmoType.DOUBLE_COMPLEX, "d")):
        after = run(opcode, datatype, struct.pack(f"<2{code}", a, b), struct.pack(f"<2{code}", c, d), b"")
        assert struct.unpack(f"<2{code}", after) == expected


@CHECKED
@given(st.data(), st.sampled_from([AmoOpcode.CSWAP, AmoOpcode.CSWAP_NE]))
def test_complex_numbers_are_equal_where_both_parts_are(data: st.DataObject, opcode: AmoOpcode) -> None:
    target, operand, compare = data.draw(rows(AmoType.DOUBLE_COMPLEX))
    t, o, c = (np.frombuffer(row, "<c16") for row in (target, operand, compare))
    assert (
        run(opcode, AmoType.DOUBLE_COMPLEX, target, operand, compare)
        == np.where(COMPARISONS[opcode](c, t), o, t).tobytes()
    )


@CHECKED
@given(st.data(), st.sampled_from(REAL_OPCODES), st.sampled_from([AmoType.UINT16, AmoType.INT128, AmoType.FP16]))
def test_an_array_is_its_elements_one_by_one(data: st.DataObject, opcode: AmoOpcode, datatype: AmoType) -> None:
    target, operand, compare = data.draw(rows(datatype))
    size = SIZES[datatype]
    singly = b"".join(
        run(opcode, datatype, target[at : at + size], operand[at : at + size], compare[at : at + size])
        for at in range(0, len(target), size)
    )
    assert run(opcode, datatype, target, operand, compare) == singly
