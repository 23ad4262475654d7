"""Whatever arrives, the carrier's protocol takes it or ends the connection; it raises nothing, and keeps no more than a
window."""

import contextlib
from ipaddress import IPv4Address

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.run.carrier.frames import ConnectionEnds, Frame, FrameError, FrameKind, decode, encode
from testbed.run.carrier.protocol import ConnectionLimits, ConnectionState, accept_connection, open_connection

ENDS = ConnectionEnds(IPv4Address("10.0.1.2"), 40_000, IPv4Address("10.0.2.2"), 5201)
LIMITS = ConnectionLimits(window_bytes=4096, data_bytes=1024, patience_ns=1 << 30)
WORDS = st.one_of(st.integers(0, 40), st.integers(0, (1 << 64) - 1))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame that is well made, whatever it says."""
    kind = draw(st.sampled_from(FrameKind))
    window = draw(st.integers(1 << 12, 1 << 28))
    frame = Frame(
        kind,
        draw(st.booleans()),
        7,
        draw(WORDS),
        draw(st.binary(min_size=1, max_size=5000)) if kind is FrameKind.DATA else b"",
        window,
        draw(st.integers(0, (1 << 64) - 1)),
        ENDS,
    )
    return encode(frame)


@given(message=st.one_of(st.binary(max_size=200), frames().map(lambda data: data[:100])))
@settings(max_examples=400, deadline=None)
def test_bytes_are_a_frame_or_refused(message: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert encode(decode(message)) == message


@given(messages=st.lists(frames(), max_size=30), is_opener=st.booleans(), is_connected=st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_connection_outlives_or_ends_whatever_comes(
    messages: list[bytes], is_opener: bool, is_connected: bool
) -> None:
    connection = open_connection(7, ENDS, LIMITS, 0)
    if not is_opener:
        connection = accept_connection(decode(connection.take_frames()[0]), LIMITS)
        if is_connected:
            connection.connected()
    kept = 0
    for message in messages:
        with contextlib.suppress(FrameError):
            frame = decode(message)
            was_closed = connection.state is ConnectionState.CLOSED
            connection.on_frame(frame, 0)
            kept += 0 if was_closed else len(frame.data)
            assert kept <= LIMITS.window_bytes or connection.state is ConnectionState.CLOSED
        assert len(connection.take_frames()) <= 2
        if connection.state is ConnectionState.CLOSED:
            assert connection.to_write is None and connection.room == 0
