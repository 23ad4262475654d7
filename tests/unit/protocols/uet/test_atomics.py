"""Atomic operations by hand: values, special values, and every refusal."""

from __future__ import annotations

import struct
from math import inf, nan

import pytest

from testbed.protocols.uet.atomics import AtomicRefused, apply, element_bytes
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, ReturnCode

INTEGERS = tuple(AmoType)[:10]
REALS = (AmoType.FLOAT, AmoType.DOUBLE, AmoType.BF16, AmoType.FP16)
COMPLEX = (AmoType.FLOAT_COMPLEX, AmoType.DOUBLE_COMPLEX)
BITWISE = (AmoOpcode.BOR, AmoOpcode.BAND, AmoOpcode.BXOR, AmoOpcode.MSWAP)
LOGICAL = (AmoOpcode.LOR, AmoOpcode.LAND, AmoOpcode.LXOR)
COMPLEX_OPCODES = (
    AmoOpcode.SUM,
    AmoOpcode.DIFF,
    AmoOpcode.PROD,
    AmoOpcode.READ,
    AmoOpcode.WRITE,
    AmoOpcode.CSWAP,
    AmoOpcode.CSWAP_NE,
)
CODES = {
    AmoType.INT8: "b",
    AmoType.UINT8: "B",
    AmoType.INT32: "i",
    AmoType.UINT32: "I",
    AmoType.INT64: "q",
    AmoType.UINT64: "Q",
    AmoType.FLOAT: "f",
    AmoType.DOUBLE: "d",
    AmoType.FP16: "e",
}


def pack(datatype: AmoType, *values: float) -> bytes:
    if datatype in {AmoType.INT128, AmoType.UINT128}:
        return b"".join((int(value) & ((1 << 128) - 1)).to_bytes(16, "little") for value in values)
    return struct.pack(f"<{len(values)}{CODES[datatype]}", *values)


def run(opcode: AmoOpcode, datatype: AmoType, target: bytes, operand: bytes, compare: bytes = b"") -> bytes:
    """The target afterwards; what is returned must be the target before."""
    memory = bytearray(target)
    assert apply(opcode, datatype, memoryview(memory), operand, compare) == target
    return bytes(memory)


def refusal(
    opcode: int, datatype: int, target: bytes, operand: bytes, compare: bytes = b"", address: int = 0
) -> ReturnCode:
    memory = bytearray(target)
    with pytest.raises(AtomicRefused) as caught:
        apply(opcode, datatype, memoryview(memory), operand, compare, address)
    assert memory == target
    return caught.value.return_code


@pytest.mark.parametrize(
    ("opcode", "datatype", "target", "operand", "result"),
    [
        (AmoOpcode.MIN, AmoType.INT8, -1, 1, -1),
        (AmoOpcode.MIN, AmoType.UINT8, 255, 1, 1),
        (AmoOpcode.MAX, AmoType.INT8, -1, 1, 1),
        (AmoOpcode.MAX, AmoType.UINT8, 255, 1, 255),
        (AmoOpcode.MIN, AmoType.INT128, -(1 << 127), 1, -(1 << 127)),
        (AmoOpcode.MAX, AmoType.UINT128, 1 << 127, 1, 1 << 127),
        (AmoOpcode.SUM, AmoType.UINT8, 200, 100, 44),
        (AmoOpcode.SUM, AmoType.INT32, 0x7FFFFFFF, 1, -0x80000000),
        (AmoOpcode.SUM, AmoType.UINT64, (1 << 64) - 1, 1, 0),
        (AmoOpcode.SUM, AmoType.UINT128, (1 << 64) - 1, 1, 1 << 64),
        (AmoOpcode.SUM, AmoType.INT128, (1 << 127) - 1, 1, -(1 << 127)),
        (AmoOpcode.DIFF, AmoType.UINT32, 1, 2, 0xFFFFFFFF),
        (AmoOpcode.DIFF, AmoType.INT64, 1, 2, -1),
        (AmoOpcode.PROD, AmoType.INT8, -3, 50, 106),
        (AmoOpcode.PROD, AmoType.INT64, -3, 50, -150),
        (AmoOpcode.LOR, AmoType.UINT32, 0, 0x100, 1),
        (AmoOpcode.LOR, AmoType.UINT32, 0, 0, 0),
        (AmoOpcode.LAND, AmoType.INT32, 2, -4, 1),
        (AmoOpcode.LAND, AmoType.INT32, 2, 0, 0),
        (AmoOpcode.LXOR, AmoType.INT128, 2, 4, 0),
        (AmoOpcode.LXOR, AmoType.INT128, 0, 4, 1),
        (AmoOpcode.BOR, AmoType.UINT8, 0b1100, 0b1010, 0b1110),
        (AmoOpcode.BAND, AmoType.UINT8, 0b1100, 0b1010, 0b1000),
        (AmoOpcode.BXOR, AmoType.UINT8, 0b1100, 0b1010, 0b0110),
        (AmoOpcode.READ, AmoType.UINT8, 7, 9, 7),
        (AmoOpcode.WRITE, AmoType.UINT8, 7, 9, 9),
        (AmoOpcode.MIN, AmoType.DOUBLE, -0.5, -1.5, -1.5),
        (AmoOpcode.MAX, AmoType.DOUBLE, -0.5, -1.5, -0.5),
        (AmoOpcode.SUM, AmoType.DOUBLE, 0.1, 0.2, 0.1 + 0.2),
        (AmoOpcode.DIFF, AmoType.FLOAT, 1.0, 2.0**-24, 1 - 2.0**-24),
        (AmoOpcode.SUM, AmoType.FLOAT, 1.0, 2.0**-24, 1.0),
        (AmoOpcode.SUM, AmoType.FLOAT, 1.0, 3 * 2.0**-24, 1 + 2.0**-22),
        (AmoOpcode.PROD, AmoType.FP16, 1.5, -2.0, -3.0),
        (AmoOpcode.SUM, AmoType.FP16, 2048.0, 1.0, 2048.0),
        (AmoOpcode.SUM, AmoType.FP16, 2048.0, 3.0, 2052.0),
        (AmoOpcode.LAND, AmoType.FLOAT, 0.5, -0.25, 1.0),
        (AmoOpcode.LOR, AmoType.DOUBLE, -0.0, 0.0, 0.0),
        (AmoOpcode.LXOR, AmoType.FP16, nan, 0.0, 1.0),
    ],
)
def test_one_element(opcode: AmoOpcode, datatype: AmoType, target: float, operand: float, result: float) -> None:
    assert run(opcode, datatype, pack(datatype, target), pack(datatype, operand)) == pack(datatype, result)


@pytest.mark.parametrize("datatype", [AmoType.INT32, AmoType.INT128, AmoType.DOUBLE, AmoType.FP16])
@pytest.mark.parametrize(
    ("opcode", "below", "equal", "above"),
    [
        (AmoOpcode.CSWAP, False, True, False),
        (AmoOpcode.CSWAP_NE, True, False, True),
        (AmoOpcode.CSWAP_LE, True, True, False),
        (AmoOpcode.CSWAP_LT, True, False, False),
        (AmoOpcode.CSWAP_GE, False, True, True),
        (AmoOpcode.CSWAP_GT, False, False, True),
    ],
)
def test_compare_and_swap_compares_the_compare_operand_with_the_target(
    opcode: AmoOpcode, below: bool, equal: bool, above: bool, datatype: AmoType
) -> None:
    target, swap = pack(datatype, -5, -5, -5), pack(datatype, 1, 2, 3)
    compare = pack(datatype, -6, -5, 4)
    expected = [new if swapped else -5 for new, swapped in zip((1, 2, 3), (below, equal, above), strict=True)]
    assert run(opcode, datatype, target, swap, compare) == pack(datatype, *expected)


def test_unsigned_compare_and_swap_knows_no_negative_numbers() -> None:
    assert run(AmoOpcode.CSWAP_GT, AmoType.UINT8, b"\x05", b"\x07", b"\xff") == b"\x07"
    assert run(AmoOpcode.CSWAP_GT, AmoType.INT8, b"\x05", b"\x07", b"\xff") == b"\x05"


def test_masked_swap_changes_the_bits_of_the_mask() -> None:
    assert run(AmoOpcode.MSWAP, AmoType.UINT16, b"\xaa\xaa", b"\x55\x55", b"\xf0\x00") == b"\x5a\xaa"


def test_values_lie_little_endian_in_memory() -> None:
    assert run(AmoOpcode.SUM, AmoType.UINT32, b"\xff\x00\x00\x00", b"\x01\x00\x00\x00") == b"\x00\x01\x00\x00"
    assert run(AmoOpcode.SUM, AmoType.UINT128, b"\xff" * 8 + bytes(8), b"\x01" + bytes(15)) == bytes(
        8
    ) + b"\x01" + bytes(7)


def test_arrays_are_taken_element_by_element() -> None:
    target, operand = pack(AmoType.UINT8, 255, 1, 0, 7), pack(AmoType.UINT8, 1, 1, 1, 255)
    assert run(AmoOpcode.SUM, AmoType.UINT8, target, operand) == pack(AmoType.UINT8, 0, 2, 1, 6)
    assert run(AmoOpcode.MIN, AmoType.UINT8, target, operand) == pack(AmoType.UINT8, 1, 1, 0, 7)


@pytest.mark.parametrize("opcode", [AmoOpcode.MIN, AmoOpcode.MAX])
@pytest.mark.parametrize(("target", "operand"), [(nan, 1.0), (1.0, nan), (nan, nan), (0.0, -0.0), (-0.0, 0.0)])
def test_min_and_max_leave_the_target_where_nothing_is_less(opcode: AmoOpcode, target: float, operand: float) -> None:
    for datatype in (AmoType.FLOAT, AmoType.DOUBLE, AmoType.FP16):
        before = pack(datatype, target)
        assert run(opcode, datatype, before, pack(datatype, operand)) == before


def test_the_payload_of_a_nan_survives_what_does_not_touch_it() -> None:
    odd_nan, one = bytes.fromhex("adde a07f"), pack(AmoType.FLOAT, 1.0)
    assert run(AmoOpcode.MIN, AmoType.FLOAT, odd_nan, one) == odd_nan
    assert run(AmoOpcode.CSWAP, AmoType.FLOAT, one, odd_nan, one) == odd_nan


def test_nans_equal_nothing_and_zeros_equal_each_other() -> None:
    for datatype in (AmoType.FLOAT, AmoType.DOUBLE, AmoType.FP16):
        a_nan, one = pack(datatype, nan), pack(datatype, 1.0)
        assert run(AmoOpcode.CSWAP, datatype, a_nan, one, a_nan) == a_nan
        assert run(AmoOpcode.CSWAP_NE, datatype, a_nan, one, a_nan) == one
        assert run(AmoOpcode.CSWAP, datatype, pack(datatype, -0.0), one, pack(datatype, 0.0)) == one


@pytest.mark.parametrize(
    ("datatype", "largest"),
    [(AmoType.FLOAT, (2 - 2.0**-23) * 2.0**127), (AmoType.FP16, 65504.0), (AmoType.DOUBLE, 1e308)],
)
def test_overflow_gives_an_infinity_of_the_right_sign(datatype: AmoType, largest: float) -> None:
    target = pack(datatype, largest, 1.0, -largest)
    assert run(AmoOpcode.SUM, datatype, target, target) == pack(datatype, inf, 2.0, -inf)
    assert run(AmoOpcode.DIFF, datatype, pack(datatype, inf), pack(datatype, 1.0)) == pack(datatype, inf)


def test_subnormals_are_kept() -> None:
    tiny = 2.0**-149
    assert run(AmoOpcode.SUM, AmoType.FLOAT, pack(AmoType.FLOAT, tiny), pack(AmoType.FLOAT, tiny)) == pack(
        AmoType.FLOAT, 2 * tiny
    )


@pytest.mark.parametrize(
    ("opcode", "target", "operand", "result"),
    [
        (AmoOpcode.SUM, 0x3F80, 0x4000, 0x4040),  # 1 + 2
        (AmoOpcode.SUM, 0x4380, 0x3F80, 0x4380),  # 256 + 1 is a tie: 256 is even
        (AmoOpcode.SUM, 0x4381, 0x3F80, 0x4382),  # 258 + 1 is a tie: 260 is even
        (AmoOpcode.DIFF, 0x3F80, 0x3B00, 0x3F80),  # 1 - 1/512 is a tie: 1 is even
        (AmoOpcode.PROD, 0x3FC0, 0xC000, 0xC040),  # 1.5 * -2
        (AmoOpcode.SUM, 0x7F7F, 0x7F7F, 0x7F80),  # overflow of FLOAT too
        (AmoOpcode.SUM, 0xFF7F, 0xFB00, 0xFF80),  # overflow by rounding alone
        (AmoOpcode.DIFF, 0x7F80, 0x7F80, 0x7FC0),  # inf - inf
        (AmoOpcode.MAX, 0xBF80, 0xC000, 0xBF80),  # -1, -2
        (AmoOpcode.MIN, 0x7FC1, 0x3F80, 0x7FC1),  # a NaN stays
        (AmoOpcode.LAND, 0x8000, 0x3F80, 0x0000),  # -0 is false
        (AmoOpcode.LOR, 0x8000, 0x0001, 0x3F80),
    ],
)
def test_bf16_rounds_to_nearest_even(opcode: AmoOpcode, target: int, operand: int, result: int) -> None:
    after = run(opcode, AmoType.BF16, target.to_bytes(2, "little"), operand.to_bytes(2, "little"))
    ignored = 0x8000 if result == 0x7FC0 else 0  # the sign of a NaN that is made is the machine's affair
    assert int.from_bytes(after, "little") | ignored == result | ignored


@pytest.mark.parametrize(("datatype", "code"), [(AmoType.FLOAT_COMPLEX, "f"), (AmoType.DOUBLE_COMPLEX, "d")])
def test_complex_numbers(datatype: AmoType, code: str) -> None:
    def numbers(*values: float) -> bytes:
        return struct.pack(f"<{len(values)}{code}", *values)

    target, operand = numbers(1, 2, 0, -1), numbers(3, -4, 5, 0)
    assert run(AmoOpcode.SUM, datatype, target, operand) == numbers(4, -2, 5, -1)
    assert run(AmoOpcode.DIFF, datatype, target, operand) == numbers(-2, 6, -5, -1)
    assert run(AmoOpcode.PROD, datatype, target, operand) == numbers(11, 2, 0, -5)
    assert run(AmoOpcode.WRITE, datatype, target, operand) == operand
    half_equal = numbers(1, 2, 0, 1)
    assert run(AmoOpcode.CSWAP, datatype, target, operand, half_equal) == numbers(3, -4, 0, -1)
    assert run(AmoOpcode.CSWAP_NE, datatype, target, operand, half_equal) == numbers(1, 2, 5, 0)


def test_a_read_needs_no_operand_and_no_writable_memory() -> None:
    assert apply(AmoOpcode.READ, AmoType.UINT16, memoryview(b"abcd"), b"") == b"abcd"


def test_operands_may_be_views_of_a_packet() -> None:
    memory = bytearray(4)
    packet = memoryview(b"....\x01\x00\x00\x00\x00\x00\x00\x00")
    for opcode in (AmoOpcode.SUM, AmoOpcode.BOR, AmoOpcode.MAX, AmoOpcode.WRITE, AmoOpcode.CSWAP_NE):
        memory[:] = bytes(4)
        apply(opcode, AmoType.UINT32, memoryview(memory), packet[4:8], packet[:4])
        assert memory == packet[4:8]


@pytest.mark.parametrize("datatype", [AmoType.LONG_DOUBLE, AmoType.LONG_DOUBLE_COMPLEX, 0x12, 0xE0, 0xFF])
def test_types_we_do_not_know_are_refused(datatype: int) -> None:
    assert refusal(AmoOpcode.SUM, datatype, bytes(16), bytes(16)) == ReturnCode.AMO_UNSUPPORTED_DT
    with pytest.raises(AtomicRefused):
        element_bytes(datatype)


@pytest.mark.parametrize("opcode", [AmoOpcode.INVAL, 0x15, 0xE0, 0xFE])
def test_operations_we_do_not_know_are_refused(opcode: int) -> None:
    assert refusal(opcode, AmoType.UINT64, bytes(8), bytes(8), bytes(8)) == ReturnCode.AMO_UNSUPPORTED_OP


@pytest.mark.parametrize("datatype", [*INTEGERS, *REALS, *COMPLEX])
@pytest.mark.parametrize("opcode", [opcode for opcode in AmoOpcode if opcode is not AmoOpcode.INVAL])
def test_each_type_knows_its_operations(opcode: AmoOpcode, datatype: AmoType) -> None:
    zero = bytes(element_bytes(datatype))
    known = datatype in INTEGERS or (opcode in COMPLEX_OPCODES if datatype in COMPLEX else opcode not in BITWISE)
    if known:
        assert run(opcode, datatype, zero, zero, zero) == zero
    else:
        assert refusal(opcode, datatype, zero, zero, zero) == ReturnCode.AMO_UNSUPPORTED_OP


@pytest.mark.parametrize(
    ("opcode", "target", "operand", "compare"),
    [
        (AmoOpcode.SUM, 0, 0, 0),
        (AmoOpcode.READ, 0, 0, 0),
        (AmoOpcode.SUM, 6, 6, 0),
        (AmoOpcode.READ, 3, 0, 0),
        (AmoOpcode.SUM, 8, 4, 0),
        (AmoOpcode.SUM, 4, 8, 0),
        (AmoOpcode.WRITE, 4, 0, 0),
        (AmoOpcode.READ, 8, 4, 0),
        (AmoOpcode.CSWAP, 4, 4, 0),
        (AmoOpcode.CSWAP, 4, 4, 16),
        (AmoOpcode.MSWAP, 8, 8, 4),
    ],
)
def test_wrong_sizes_are_refused(opcode: AmoOpcode, target: int, operand: int, compare: int) -> None:
    code = refusal(opcode, AmoType.UINT32, bytes(target), bytes(operand), bytes(compare))
    assert code == ReturnCode.AMO_UNSUPPORTED_SIZE


@pytest.mark.parametrize("datatype", [*INTEGERS, *REALS, *COMPLEX])
def test_addresses_are_multiples_of_the_scalar(datatype: AmoType) -> None:
    size = element_bytes(datatype)
    alignment = size // 2 if datatype in COMPLEX else size
    for address in range(33):
        if address % alignment:
            assert (
                refusal(AmoOpcode.WRITE, datatype, bytes(size), bytes(size), b"", address) == ReturnCode.AMO_UNALIGNED
            )
        else:
            apply(AmoOpcode.WRITE, datatype, memoryview(bytearray(size)), bytes(size), b"", address)


def test_sizes_of_elements() -> None:
    assert [element_bytes(datatype) for datatype in INTEGERS] == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16]
    assert [element_bytes(datatype) for datatype in (*REALS, *COMPLEX)] == [4, 8, 2, 2, 8, 16]
