"""Whatever bytes a program sends, its connection does what they say or ends; nothing else comes of it."""

import contextlib

from fake_programs import BASE, FakePair
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.endpoints.libfabric.wire import BODY_BYTES, PLACE, REQUEST, ProviderWireError, RequestKind, address_bytes

NUMBERS = st.one_of(
    st.integers(0, 16),
    st.sampled_from([BASE, BASE + 8, 1 << 47, (1 << 48) - 1, 1 << 48, 1 << 63, (1 << 64) - 1, 4096, 4097, 1 << 28]),
    st.integers(0, (1 << 64) - 1),
)
PLACES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=9).map(
    lambda pairs: b"".join(PLACE.pack(*one) for one in pairs)
)
BODIES = st.one_of(st.just(b""), st.binary(max_size=64), PLACES, st.just(b"x" * 4096))
NAMES = st.tuples(
    st.sampled_from([address_bytes("10.0.0.1"), address_bytes("10.0.0.2"), b"\xff" * 16, bytes(16)]),
    st.integers(0, 5000),
    st.integers(0, 20),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request whose fields may be anything, and are near to what ours would say."""
    body = draw(BODIES)
    length = draw(st.one_of(st.just(len(body)), NUMBERS))
    says = draw(st.one_of(st.just(len(body)), st.integers(0, BODY_BYTES + 10)))
    kind = draw(st.one_of(st.sampled_from(list(RequestKind)), st.integers(0, 0xFFFF)))
    flags = draw(st.one_of(st.integers(0, 2047), st.integers(0, 0xFFFF)))
    endpoint = draw(st.one_of(st.just(1), st.integers(0, 0xFFFF)))
    places = draw(st.one_of(st.just(len(body) // PLACE.size), st.integers(0, 0xFFFF)))
    numbers = [draw(NUMBERS) for _ in range(4)]
    id, tag, ignore, data = numbers
    return REQUEST.pack(kind, flags, says, id, length, tag, ignore, data, endpoint, places, *draw(NAMES)) + body


@settings(max_examples=300, deadline=None)
@given(st.lists(requests(), max_size=12), st.lists(st.integers(1, 200), max_size=6))
def test_requests_that_may_be_anything(said: list[bytes], cuts: list[int]) -> None:
    pair = FakePair.opened(size=8192)
    data = b"".join(said)
    with contextlib.suppress(ProviderWireError):
        for cut in cuts:
            pair.a.connection.receive(data[:cut], pair.wire.now)
            data = data[cut:]
        pair.a.connection.receive(data, pair.wire.now)
        pair.run(20)
        pair.a.replies()
    pair.a.connection.close(pair.wire.now)
    pair.run(20)
    assert len(pair.wire.a.memory) == 0
    assert [endpoint.address.job_id for endpoint in pair.wire.a.endpoints] == [7]
    # The other program has seen nothing of it but messages.
    assert pair.b.ask(RequestKind.OPEN_ENDPOINT).endpoint == 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_bytes_that_may_be_anything(data: bytes) -> None:
    pair = FakePair()
    with contextlib.suppress(ProviderWireError):
        pair.a.connection.receive(data, 0)
    pair.a.connection.close(0)
