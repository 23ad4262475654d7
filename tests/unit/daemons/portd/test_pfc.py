"""PFC frames byte for byte, and the times they stand for."""

import pytest
from pfc_frames import MAX_QUANTA, MalformedPfc, decode_pfc, encode_pfc, pause_ns, priorities_of

SOURCE = bytes.fromhex("020000000a01")
XOFF_3 = bytes.fromhex(
    "0180c2000001"  # destination
    "020000000a01"  # source
    "8808"  # MAC control
    "0101"  # PFC
    "0008"  # priority 3
    "000000000000ffff0000000000000000"  # eight times
).ljust(60, b"\0")


def test_frame_is_that_of_the_standard() -> None:
    assert encode_pfc(SOURCE, 1 << 3, (0, 0, 0, MAX_QUANTA, 0, 0, 0, 0)) == XOFF_3


def test_decode_takes_what_encode_made() -> None:
    frame = decode_pfc(XOFF_3)
    assert (frame.source, frame.vector, frame.quanta[3]) == (SOURCE, 8, MAX_QUANTA)


def test_reserved_half_of_the_vector_is_ignored() -> None:
    assert decode_pfc(XOFF_3[:16] + b"\xa5\x08" + XOFF_3[18:]).vector == 8


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (XOFF_3[:33], "33 bytes"),
        (b"", "0 bytes"),
        (b"\x01\x80\xc2\x00\x00\x0e" + XOFF_3[6:], "destination"),
        (XOFF_3[:12] + b"\x08\x00" + XOFF_3[14:], "EtherType"),
        (XOFF_3[:14] + b"\x00\x01" + XOFF_3[16:], "opcode 0x0001"),
    ],
)
def test_malformed_frames_say_what_is_wrong(frame: bytes, message: str) -> None:
    with pytest.raises(MalformedPfc, match=message):
        decode_pfc(frame)


@pytest.mark.parametrize(
    ("source", "vector", "quanta"),
    [(SOURCE[:5], 1, (0,) * 8), (SOURCE, 256, (0,) * 8), (SOURCE, 1, (0,) * 7), (SOURCE, 1, (65_536, *(0,) * 7))],
)
def test_what_does_not_fit_is_refused(source: bytes, vector: int, quanta: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_pfc(source, vector, quanta)


def test_a_quantum_is_512_bit_times() -> None:
    assert pause_ns(1, 512) == 1_000_000_000
    assert pause_ns(MAX_QUANTA, 50_000_000) == 671_078_400
    assert pause_ns(1, 1_000_000_000_000) == 1, "rounded up: a pause of one quantum is a pause"
    assert pause_ns(0, 50_000_000) == 0


def test_priorities_of_a_vector() -> None:
    assert priorities_of(0b1001_0001) == (0, 4, 7)
    assert priorities_of(0) == ()
