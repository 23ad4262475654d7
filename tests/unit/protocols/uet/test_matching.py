"""Receives and messages: who meets whom, in which order, and what is refused."""

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.matching import ReceiveQueue

ALICE, BOB = 1, 2
ANY_TAG = (1 << 64) - 1
NOTHING = memoryview(b"")


def post(queue: ReceiveQueue, name: object, tag: int = 0, ignore: int = 0, initiator: int | None = None) -> object:
    """What the receive took of the unexpected messages; None: it waits."""
    message = queue.post(NOTHING, name, tag, ignore, initiator)
    return None if message is None else message.content


def match(queue: ReceiveQueue, tag: int = 0, initiator: int = ALICE) -> object:
    """Name of the receive that takes the message; None: none does."""
    receive = queue.match(tag, initiator)
    return None if receive is None else receive.context


def arrive(queue: ReceiveQueue, name: object, tag: int = 0, initiator: int = ALICE, stored: int = 0) -> bool:
    return queue.add_unexpected(tag, initiator, stored, name) is not None


def test_a_receive_keeps_what_it_was_posted_with() -> None:
    queue = ReceiveQueue()
    buffer = memoryview(bytearray(10))
    context = object()
    queue.post(buffer, context, 5, 3, ALICE)
    receive = queue.match(6, ALICE)
    assert receive.buffer is buffer
    assert receive.context is context
    assert (receive.tag, receive.ignore, receive.initiator) == (5, 3, ALICE)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"tag": 5}, {"tag": 5, "initiator": ALICE}),
        ({"tag": 5}, {"tag": 4, "ignore": 1}),
        ({"tag": 5, "initiator": ALICE}, {"ignore": ANY_TAG}),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_earliest_posted_wins_however_it_matches(
    first: dict[str, int], second: dict[str, int], swapped: bool
) -> None:
    queue = ReceiveQueue()
    earlier, later = (second, first) if swapped else (first, second)
    post(queue, "earlier", **earlier)
    post(queue, "later", **later)
    assert match(queue, 5) == "earlier"
    assert match(queue, 5) == "later"


def test_peek_leaves_the_message_and_discard_takes_it() -> None:
    queue = ReceiveQueue()
    arrive(queue, "a", 5, stored=100)
    message = queue.peek(4, 1)
    assert message.content == "a"
    assert queue.unexpected == 1
    assert queue.discard(message)
    assert not queue.discard(message)
    assert (queue.unexpected, queue.unexpected_bytes) == (0, 0)
    assert queue.peek(5) is None
    assert post(queue, "r", 5) is None


def test_a_message_of_another_queue_is_not_discarded() -> None:
    here, there = ReceiveQueue(), ReceiveQueue()
    arrive(here, "a")
    message = there.add_unexpected(0, ALICE, 0, "b")
    assert message is not None
    assert not here.discard(message)
    assert here.unexpected == 1


def test_of_two_receives_with_one_context_the_earlier_is_cancelled() -> None:
    queue = ReceiveQueue()
    post(queue, "same", tag=1)
    post(queue, "same", tag=0, ignore=1)
    queue.cancel("same")
    receive = queue.match(1, ALICE)
    assert receive.ignore == 1


def test_more_receives_than_allowed_are_refused() -> None:
    queue = ReceiveQueue(max_posted=2)
    post(queue, "a")
    post(queue, "b", ignore=1)
    with pytest.raises(UsageError, match="2 receives"):
        post(queue, "c")
    match(queue)
    post(queue, "c")


def test_more_bytes_than_allowed_are_refused() -> None:
    queue = ReceiveQueue(max_unexpected_bytes=100)
    assert arrive(queue, "a", stored=60)
    assert not arrive(queue, "b", stored=41)
    assert arrive(queue, "c", stored=40)
    assert arrive(queue, "header alone", stored=0)
    assert queue.unexpected_bytes == 100
    assert post(queue, "r") == "a"
    assert queue.unexpected_bytes == 40


@pytest.mark.parametrize(
    "values", [(1 << 64, 0, None), (0, 1 << 64, None), (-1, 0, None), (0, 0, 1 << 160), (0, 0, -1)]
)
def test_values_beyond_their_field_are_refused(values: tuple[int, int, int | None]) -> None:
    with pytest.raises(UsageError):
        ReceiveQueue().post(NOTHING, None, *values)


def test_a_queue_that_has_emptied_holds_on_to_nothing() -> None:
    queue = ReceiveQueue()
    for tag in range(100):
        post(queue, "r", tag)
        post(queue, "s", tag, initiator=ALICE)
        post(queue, "t", tag, 1)
    for tag in range(100):
        assert [match(queue, tag) for _ in range(3)].count(None) == 0
    for tag in range(100):
        arrive(queue, "m", tag)
        assert post(queue, "r", tag) == "m"
    assert not (queue._by_tag or queue._by_source or queue._wildcards)
    assert not (queue._arrived or queue._arrived_by_tag or queue._arrived_by_source)
