"""A program may say anything: what none of our providers says ends its connection, and touches nobody else's."""

from typing import Any

import pytest
from fake_programs import BASE, FakePair

from testbed.endpoints.libfabric.wire import (
    BODY_BYTES,
    MESSAGE_BYTES,
    PLACE,
    RECEIVES,
    REQUEST,
    TRANSMITS,
    ProviderWireError,
    RequestKind,
    WireFlag,
)

HERE = PLACE.pack(BASE, 8)


@pytest.mark.parametrize(
    ("kind", "body", "fields"),
    [
        (0, b"", {}),
        (99, b"", {}),
        (RequestKind.HELLO, b"rail1", {"data": 1}),
        (RequestKind.SEND, b"x", {"length": 2, "flags": WireFlag.INLINE}),
        (RequestKind.SEND, b"x" * 5000, {"length": 5000, "flags": WireFlag.INLINE}),
        (RequestKind.SEND, b"x", {"length": 1, "flags": WireFlag.INLINE, "places": 1}),
        (RequestKind.SEND, HERE, {"length": 9, "places": 1}),
        (RequestKind.SEND, HERE * 2, {"length": 8, "places": 1}),
        (RequestKind.SEND, HERE * 9, {"length": 72, "places": 9}),
        (RequestKind.SEND, b"", {"length": MESSAGE_BYTES + 1}),
        (RequestKind.READ, HERE, {"length": 7, "places": 1}),
        (RequestKind.RECEIVE, HERE, {"length": 7, "places": 1}),
        (RequestKind.TAGGED_RECEIVE, HERE, {"length": 8, "places": 1, "flags": WireFlag.MULTI}),
        (RequestKind.RECEIVE, HERE * 2, {"length": 16, "places": 2, "flags": WireFlag.MULTI}),
        (RequestKind.PEEK, b"x", {}),
        (RequestKind.REGISTER, b"x", {"places": 1}),
        (RequestKind.ATOMIC, b"x" * 8, {"length": 9}),
        (RequestKind.ATOMIC, b"x" * 8, {"length": 8, "flags": WireFlag.COMPARE}),
        (RequestKind.ATOMIC, b"x" * 8 + HERE, {"length": 8}),
        (RequestKind.ATOMIC, b"x" * 8 + PLACE.pack(BASE, 4), {"length": 8, "places": 1, "flags": WireFlag.FETCH}),
    ],
)
def test_what_does_not_add_up_ends_the_connection(kind: int, body: bytes, fields: dict[str, Any]) -> None:
    pair = FakePair.opened()
    with pytest.raises(ProviderWireError):
        pair.a.say(kind, body, endpoint=1, peer=pair.b.name, **fields)
    pair.a.connection.close(0)


@pytest.mark.parametrize("kind", [kind for kind in RequestKind if kind not in (RequestKind.RAIL, RequestKind.HELLO)])
def test_nothing_is_done_before_hello(kind: RequestKind) -> None:
    pair = FakePair()
    try:
        pair.a.say(kind)
    except ProviderWireError:
        return
    assert all(reply.error for reply in pair.a.replies())
    assert [endpoint.address.job_id for endpoint in pair.wire.a.endpoints] == [7]


def test_a_body_that_is_too_long_is_not_waited_for() -> None:
    pair = FakePair.opened()
    header = REQUEST.pack(RequestKind.SEND, 0, BODY_BYTES + 1, 1, 0, 0, 0, 0, 1, 0, *pair.b.name)
    with pytest.raises(ProviderWireError):
        pair.a.connection.receive(header, 0)


def test_what_comes_in_pieces_is_the_same() -> None:
    pair = FakePair.opened()
    pair.b.post(0, 8)
    header = REQUEST.pack(RequestKind.SEND, WireFlag.INLINE, 5, 77, 5, 0, 0, 0, 1, 0, *pair.b.name)
    for byte in header + b"hello":
        pair.a.connection.receive(bytes([byte]), 0)
    pair.run()
    assert pair.b.at(0, 5) == b"hello"


def test_operations_under_way_are_bounded() -> None:
    pair = FakePair.opened()
    for _ in range(TRANSMITS):
        pair.a.send(b"x", pair.b)
    with pytest.raises(ProviderWireError, match="under way"):
        pair.a.send(b"x", pair.b)


def test_receives_that_wait_are_bounded() -> None:
    pair = FakePair.opened()
    for _ in range(RECEIVES):
        pair.a.post(0, 8)
    with pytest.raises(ProviderWireError, match="that wait"):
        pair.a.post(0, 8)


def test_an_endpoint_of_nobody_is_an_error_of_the_operation() -> None:
    pair = FakePair.opened()
    pair.a.say(RequestKind.SEND, b"x", length=1, flags=WireFlag.INLINE, endpoint=9, peer=pair.b.name)
    pair.a.say(RequestKind.RECEIVE, HERE, length=8, places=1, endpoint=9)
    pair.a.say(RequestKind.CANCEL, endpoint=9, data=1)
    pair.a.say(RequestKind.SEND, b"x", length=1, flags=WireFlag.INLINE, endpoint=1, peer=(b"\xff" * 16, 9999, 1))
    assert [bool(reply.error) for reply in pair.a.replies()] == [True, True, True]
    assert pair.a.ask(RequestKind.CLOSE_ENDPOINT, endpoint=9).error


def test_a_flood_of_operations_without_an_end_of_theirs_is_no_leak() -> None:
    """Errors are told at once, and count no longer."""
    pair = FakePair.opened()
    for _ in range(2 * TRANSMITS):
        pair.a.say(RequestKind.SEND, b"x", length=1, flags=WireFlag.INLINE, endpoint=9, peer=pair.b.name)
    assert len(pair.a.replies()) == 2 * TRANSMITS
