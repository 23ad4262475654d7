"""Receives and messages: who meets whom, in which order, and what is refused."""

from __future__ import annotations

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


def test_untagged_receives_are_taken_in_order() -> None:
    queue = ReceiveQueue()
    for name in "abc":
        assert post(queue, name) is None
    assert [match(queue) for _ in range(4)] == ["a", "b", "c", None]
    assert queue.posted == 0


def test_a_receive_keeps_what_it_was_posted_with() -> None:
    queue = ReceiveQueue()
    buffer = memoryview(bytearray(10))
    context = object()
    queue.post(buffer, context, 5, 3, ALICE)
    receive = queue.match(6, ALICE)
    assert receive is not None
    assert receive.buffer is buffer
    assert receive.context is context
    assert (receive.tag, receive.ignore, receive.initiator) == (5, 3, ALICE)


def test_untagged_messages_are_taken_in_order() -> None:
    queue = ReceiveQueue()
    for name in "abc":
        assert arrive(queue, name)
    assert [post(queue, "r") for _ in range(4)] == ["a", "b", "c", None]
    assert (queue.unexpected, queue.posted) == (0, 1)


def test_a_receive_may_ask_for_one_initiator() -> None:
    queue = ReceiveQueue()
    post(queue, "from bob", initiator=BOB)
    post(queue, "from anyone")
    assert match(queue, initiator=ALICE) == "from anyone"
    assert match(queue, initiator=ALICE) is None
    assert match(queue, initiator=BOB) == "from bob"


def test_a_late_receive_may_ask_for_one_initiator() -> None:
    queue = ReceiveQueue()
    arrive(queue, "of alice", initiator=ALICE)
    arrive(queue, "of bob", initiator=BOB)
    assert post(queue, "r", initiator=BOB) == "of bob"
    assert post(queue, "r", initiator=BOB) is None
    assert post(queue, "s", initiator=ALICE) == "of alice"


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


def test_an_early_wildcard_that_does_not_match_stands_in_nobodys_way() -> None:
    queue = ReceiveQueue()
    post(queue, "others", tag=0x10, ignore=0xF)
    post(queue, "exact", tag=5)
    post(queue, "all", ignore=ANY_TAG)
    assert match(queue, 5) == "exact"
    assert match(queue, 5) == "all"
    assert match(queue, 0x1A) == "others"


def test_a_wildcard_takes_the_earliest_message_it_matches() -> None:
    queue = ReceiveQueue()
    arrive(queue, "tag 9", 9)
    arrive(queue, "tag 5, bob", 5, BOB)
    arrive(queue, "tag 4", 4)
    assert post(queue, "r", 4, 1, ALICE) == "tag 4"
    assert post(queue, "r", 4, 1) == "tag 5, bob"
    assert post(queue, "r", 0, ANY_TAG) == "tag 9"


def test_all_64_bits_of_a_tag_matter() -> None:
    queue = ReceiveQueue()
    post(queue, "high", 1 << 63)
    assert match(queue, 0) is None
    assert match(queue, 1 << 63) == "high"


def test_ignored_bits_of_the_receive_itself_do_not_matter() -> None:
    queue = ReceiveQueue()
    post(queue, "r", 0xFF, 0x0F)
    assert match(queue, 0xF0) == "r"


def test_peek_leaves_the_message_and_discard_takes_it() -> None:
    queue = ReceiveQueue()
    arrive(queue, "a", 5, stored=100)
    message = queue.peek(4, 1)
    assert message is not None
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


def test_discarding_a_message_keeps_the_order_of_the_others() -> None:
    queue = ReceiveQueue()
    messages = [queue.add_unexpected(0, ALICE, 1, name) for name in "abc"]
    assert messages[1] is not None
    queue.discard(messages[1])
    assert [post(queue, "r"), post(queue, "r")] == ["a", "c"]


@pytest.mark.parametrize("how", [{}, {"initiator": ALICE}, {"ignore": 1}])
def test_a_cancelled_receive_takes_nothing(how: dict[str, int]) -> None:
    queue = ReceiveQueue()
    for name in ("a", "b", "c"):
        post(queue, name, **how)
    cancelled = queue.cancel("b")
    assert cancelled is not None
    assert cancelled.context == "b"
    assert queue.cancel("b") is None
    assert queue.posted == 2
    assert [match(queue) for _ in range(3)] == ["a", "c", None]


def test_of_two_receives_with_one_context_the_earlier_is_cancelled() -> None:
    queue = ReceiveQueue()
    post(queue, "same", tag=1)
    post(queue, "same", tag=0, ignore=1)
    queue.cancel("same")
    receive = queue.match(1, ALICE)
    assert receive is not None
    assert receive.ignore == 1


def test_cancel_all_returns_everything_in_order() -> None:
    queue = ReceiveQueue()
    post(queue, 1, initiator=ALICE)
    post(queue, 2, ignore=1)
    post(queue, 3)
    post(queue, 4, initiator=ALICE)
    assert [receive.context for receive in queue.cancel_all()] == [1, 2, 3, 4]
    assert queue.posted == 0
    assert match(queue) is None
    assert queue.cancel_all() == []


def test_more_receives_than_allowed_are_refused() -> None:
    queue = ReceiveQueue(max_posted=2)
    post(queue, "a")
    post(queue, "b", ignore=1)
    with pytest.raises(UsageError, match="2 receives"):
        post(queue, "c")
    match(queue)
    post(queue, "c")


def test_a_full_queue_still_serves_receives_from_what_has_arrived() -> None:
    queue = ReceiveQueue(max_posted=1)
    post(queue, "a", 1)
    arrive(queue, "m", 2)
    assert post(queue, "b", 2) == "m"


def test_more_messages_than_allowed_are_refused() -> None:
    queue = ReceiveQueue(max_unexpected=2)
    assert arrive(queue, "a")
    assert arrive(queue, "b")
    assert not arrive(queue, "c")
    assert post(queue, "r") == "a"
    assert arrive(queue, "c")


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
