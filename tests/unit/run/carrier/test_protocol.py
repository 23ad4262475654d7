"""A carried connection as a dialogue: what each end is told, and what it says."""

import errno
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from testbed.run.carrier.frames import HEADER_BYTES, ConnectionEnds, Frame, FrameKind, decode
from testbed.run.carrier.protocol import (
    LEAST_COST,
    RETRY_NS,
    CarriedConnection,
    ConnectionLimits,
    ConnectionState,
    accept_connection,
    open_connection,
)

ENDS = ConnectionEnds(IPv4Address("10.0.1.2"), 40_000, IPv4Address("10.0.2.2"), 5201)
LIMITS = ConnectionLimits(window_bytes=8192, data_bytes=2000, patience_ns=10 * RETRY_NS)


def said(connection: CarriedConnection) -> list[Frame]:
    return [decode(data) for data in connection.take_frames()]


def tell(connection: CarriedConnection, *frames: Frame, now: int = 0) -> None:
    for frame in frames:
        connection.on_frame(frame, now)


def write(connection: CarriedConnection, data: bytes) -> Frame:
    """The program of this end writes; its frame of data."""
    room = bytearray(HEADER_BYTES) + data
    return decode(connection.read(room, len(data)))


def read(connection: CarriedConnection) -> bytes:
    """The program of this end takes all that there is."""
    taken = b""
    while (data := connection.to_write) is not None:
        taken += data
        connection.written(len(data))
    if connection.end_due:
        connection.write_end()
    return taken


def opened() -> tuple[CarriedConnection, CarriedConnection]:
    opener = open_connection(7, ENDS, LIMITS, 0, word=11)
    (asking,) = said(opener)
    other = accept_connection(asking, LIMITS, word=12)
    other.connected()
    tell(opener, *said(other))
    return opener, other


def test_a_connection_is_opened_once_somebody_listens() -> None:
    opener = open_connection(7, ENDS, LIMITS, 0, word=11)
    (asking,) = said(opener)
    assert asking == Frame(FrameKind.OPEN, True, 7, window=8192, word=11, ends=ENDS)
    assert (opener.state, opener.room) == (ConnectionState.OPENING, 0)
    other = accept_connection(asking, LIMITS, word=12)
    assert (other.state, other.room, other.peer_word) == (ConnectionState.CONNECTING, 0, 11)
    other.connected()
    (answer,) = said(other)
    assert answer == Frame(FrameKind.OPENED, False, 7, window=8192, word=12)
    tell(opener, answer)
    assert (opener.state, opener.room, opener.peer_word) == (ConnectionState.OPEN, 2000, 12)
    assert other.room == 2000


def test_data_are_put_in_order_and_both_directions_end_by_themselves() -> None:
    opener, other = opened()
    first, second = write(opener, b"one "), write(opener, b"two")
    opener.read_end()
    (fin,) = said(opener)
    assert fin == Frame(FrameKind.FIN, True, 7, 2)
    tell(other, fin, second)  # messages overtake each other
    assert (other.to_write, other.end_due) == (None, False)
    tell(other, first)
    assert read(other) == b"one two"
    assert (other.write_ended, other.state) == (True, ConnectionState.OPEN)  # half closed
    answer = write(other, b"and back")
    other.read_end()
    tell(opener, answer, *said(other))
    assert read(opener) == b"and back"
    assert (opener.state, other.state) == (ConnectionState.CLOSED, ConnectionState.CLOSED)
    assert not opener.was_reset and not other.was_reset
    assert not said(opener) and not said(other)


def test_data_that_overtake_the_answer_wait_for_it() -> None:
    opener = open_connection(7, ENDS, LIMITS, 0)
    other = accept_connection(said(opener)[0], LIMITS)
    other.connected()
    (answer,) = said(other)
    tell(opener, write(other, b"early"))
    assert opener.to_write is None
    tell(opener, answer)
    assert read(opener) == b"early"


def test_no_more_is_read_than_the_other_end_has_room_for() -> None:
    opener, other = opened()
    frames = []
    while opener.room:
        frames.append(write(opener, bytes(opener.room)))
    assert [len(frame.data) for frame in frames] == [2000] * 4
    tell(other, frames[0])
    other.written(1500)
    assert not said(other)  # the rest of a frame may be taken later
    other.written(500)
    assert not said(other)  # less than a quarter of the window
    tell(other, frames[1])
    read(other)
    (credit,) = said(other)
    assert credit == Frame(FrameKind.CREDIT, False, 7, 4000)
    tell(opener, credit)
    assert opener.room == 2000
    tell(opener, replace(credit, value=2000))  # it was overtaken
    write(opener, bytes(2000))
    assert opener.room == 2000


def test_small_frames_count_for_more_than_their_bytes() -> None:
    opener, _ = opened()
    frames = 0
    while opener.room:
        write(opener, b"x")
        frames += 1
    assert frames == (8192 - 2000) // LEAST_COST + 1


def test_who_refuses_is_asked_again_until_patience_is_over() -> None:
    opener = open_connection(7, ENDS, LIMITS, 0)
    now, asked = 0, 0
    while opener.state is not ConnectionState.CLOSED:
        (asking,) = said(opener)
        asked += 1
        other = accept_connection(asking, LIMITS)
        other.refused(errno.ECONNREFUSED)
        assert other.state is ConnectionState.CLOSED and not other.was_reset
        (refusal,) = said(other)
        assert refusal == Frame(FrameKind.REFUSED, False, 7, errno.ECONNREFUSED)
        tell(opener, refusal, now=now)
        if opener.timer_at is not None:
            assert opener.state is ConnectionState.WAITING
            opener.handle_timer(opener.timer_at - 1)
            assert not said(opener)
            now = opener.timer_at
            opener.handle_timer(now)
    assert asked == 11 and now == LIMITS.patience_ns
    assert opener.was_reset and not said(opener)  # the other end knows nothing of it


def test_a_reset_of_either_program_reaches_the_other() -> None:
    opener, other = opened()
    tell(other, write(opener, b"lost"))
    opener.fail(errno.ECONNRESET)
    (reset,) = said(opener)
    assert reset == Frame(FrameKind.RESET, True, 7, errno.ECONNRESET)
    tell(other, reset)
    assert other.was_reset and other.state is ConnectionState.CLOSED and other.to_write is None
    assert not said(other)
    tell(other, reset)  # nothing is said to what is closed
    assert not said(other)


def test_a_program_that_goes_while_it_is_refused_says_nothing() -> None:
    opener = open_connection(7, ENDS, LIMITS, 0)
    said(opener)
    tell(opener, Frame(FrameKind.REFUSED, False, 7, errno.ECONNREFUSED))
    opener.fail(errno.EPIPE)
    assert opener.was_reset and not said(opener)


def test_a_program_that_goes_before_anybody_has_answered_tells_so() -> None:
    opener = open_connection(7, ENDS, LIMITS, 0)
    other = accept_connection(said(opener)[0], LIMITS)
    opener.fail(errno.ECONNRESET)
    tell(other, *said(opener))
    assert other.was_reset and other.state is ConnectionState.CLOSED


def test_what_cannot_be_delivered_ends_a_connection_in_silence() -> None:
    opener, _ = opened()
    opener.drop("Max_RTO_Retx_Cnt")
    assert opener.was_reset and opener.error == "Max_RTO_Retx_Cnt" and not said(opener)


DATA = Frame(FrameKind.DATA, True, 7, 0, b"x")


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([DATA, DATA], "comes twice"),
        ([replace(DATA, value=3), replace(DATA, value=3)], "comes twice"),
        ([replace(DATA, data=bytes(8193))], "more than it may"),
        ([replace(DATA, value=number, data=bytes(2000)) for number in range(5)], "more than it may"),
        ([replace(DATA, value=number) for number in range(33)], "more than it may"),
        ([replace(DATA, value=1 << 63)], "too far ahead"),
        ([Frame(FrameKind.CREDIT, True, 7, 1)], "taken more"),
        ([Frame(FrameKind.FIN, True, 7, 0), DATA], "after the end"),
        ([Frame(FrameKind.FIN, True, 7, 0), Frame(FrameKind.FIN, True, 7, 0)], "ends twice"),
        ([DATA, Frame(FrameKind.FIN, True, 7, 0)], "has sent more"),
        ([replace(DATA, value=3), Frame(FrameKind.FIN, True, 7, 2)], "has sent more"),
        ([Frame(FrameKind.FIN, True, 7, 1000)], "more than it may have sent"),
        ([Frame(FrameKind.OPEN, True, 7, window=8192, ends=ENDS)], "opens twice"),
        ([Frame(FrameKind.OPENED, False, 7, window=8192)], "was not asked"),
        ([Frame(FrameKind.REFUSED, False, 7)], "was not asked"),
    ],
)
def test_what_a_peer_would_never_send_resets_the_connection(frames: list[Frame], why: str) -> None:
    _, other = opened()
    tell(other, *frames)
    assert other.state is ConnectionState.CLOSED and other.was_reset
    assert why in other.error
    assert said(other) == [Frame(FrameKind.RESET, False, 7, errno.EPROTO)]


@pytest.mark.parametrize("frame", [DATA, Frame(FrameKind.FIN, True, 7, 0)])
def test_nothing_comes_before_it_is_open(frame: Frame) -> None:
    other = accept_connection(said(open_connection(7, ENDS, LIMITS, 0))[0], LIMITS)
    tell(other, frame)
    assert other.was_reset and "before it is open" in other.error


def test_a_window_holds_four_frames_at_least() -> None:
    with pytest.raises(ValueError, match="frames of 2049 bytes"):
        ConnectionLimits(window_bytes=8192, data_bytes=2049, patience_ns=1)
