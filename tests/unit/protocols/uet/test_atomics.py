"""Atomic operations by hand: BF16, and every refusal."""

import pytest

from testbed.protocols.uet.atomics import AtomicRefused, apply
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, ReturnCode

INTEGERS = tuple(AmoType)[:10]
REALS = (AmoType.FLOAT, AmoType.DOUBLE, AmoType.BF16, AmoType.FP16)
COMPLEX = (AmoType.FLOAT_COMPLEX, AmoType.DOUBLE_COMPLEX)
BITWISE = (AmoOpcode.BOR, AmoOpcode.BAND, AmoOpcode.BXOR, AmoOpcode.MSWAP)
COMPLEX_OPCODES = (
    AmoOpcode.SUM,
    AmoOpcode.DIFF,
    AmoOpcode.PROD,
    AmoOpcode.READ,
    AmoOpcode.WRITE,
    AmoOpcode.CSWAP,
    AmoOpcode.CSWAP_NE,
)
SIZES = dict(zip((*INTEGERS, *REALS, *COMPLEX), (1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 2, 2, 8, 16), strict=True))


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


@pytest.mark.parametrize("opcode", [AmoOpcode.INVAL, 0x15, 0xE0, 0xFE])
def test_operations_we_do_not_know_are_refused(opcode: int) -> None:
    assert refusal(opcode, AmoType.UINT64, bytes(8), bytes(8), bytes(8)) == ReturnCode.AMO_UNSUPPORTED_OP


@pytest.mark.parametrize("datatype", [*INTEGERS, *REALS, *COMPLEX])
@pytest.mark.parametrize("opcode", [opcode for opcode in AmoOpcode if opcode is not AmoOpcode.INVAL])
def test_each_type_knows_its_operations(opcode: AmoOpcode, datatype: AmoType) -> None:
    zero = bytes(SIZES[datatype])
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
    size = SIZES[datatype]
    alignment = size // 2 if datatype in COMPLEX else size
    for address in range(33):
        if address % alignment:
            assert (
                refusal(AmoOpcode.WRITE, datatype, bytes(size), bytes(size), b"", address) == ReturnCode.AMO_UNALIGNED
            )
        else:
            apply(AmoOpcode.WRITE, datatype, memoryview(bytearray(size)), bytes(size), b"", address)
