"""bfloat16: rounding against the definition, and adding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.workload.collectives.arithmetic import add, decode, decode_bfloat16, encode, encode_bfloat16
from testbed.workload.collectives.datatype import DataType


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0 + 2**-8, 0x3F80),  # a tie, to the even one below
        (1.0 + 3 * 2**-8, 0x3F82),  # a tie, to the even one above
        (1.0 + 2**-8 + 2**-20, 0x3F81),
        (3.4e38, 0x7F80),  # beyond the largest: infinity
        (float("inf"), 0x7F80),
        (float("-inf"), 0xFF80),
    ],
)
def test_rounding(value: float, bits: int) -> None:
    assert encode_bfloat16(np.array([value], dtype=np.float32))[0] == bits


def test_every_bit_pattern_comes_back() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = decode_bfloat16(bits)
    numbers = ~np.isnan(values)
    assert np.array_equal(encode_bfloat16(values)[numbers], bits[numbers])
    assert np.all(np.isnan(decode_bfloat16(encode_bfloat16(values)[~numbers])))


@given(value=st.floats(min_value=-(2.0**126), max_value=2.0**126, width=32))
def test_the_nearest_is_taken(value: float) -> None:
    bits = int(encode_bfloat16(np.array([value], dtype=np.float32))[0])
    around = decode_bfloat16(np.array([b for b in (bits - 1, bits, bits + 1) if 0 <= b < 2**16], dtype=np.uint16))
    finite = [Fraction(float(x)) for x in around if np.isfinite(x)]
    chosen = Fraction(float(decode_bfloat16(np.array([bits], dtype=np.uint16))[0]))
    assert abs(chosen - Fraction(value)) == min(abs(x - Fraction(value)) for x in finite)


def test_adding_rounds_once_to_the_datatype() -> None:
    a, b = np.array([256.0]), np.array([1.0])
    in_float = add(encode(a, DataType.FLOAT32), encode(b, DataType.FLOAT32), DataType.FLOAT32)
    in_bfloat = add(encode(a, DataType.BFLOAT16), encode(b, DataType.BFLOAT16), DataType.BFLOAT16)
    assert decode(in_float, DataType.FLOAT32)[0] == 257
    assert decode(in_bfloat, DataType.BFLOAT16)[0] == 256
    assert in_bfloat.dtype == np.uint16
