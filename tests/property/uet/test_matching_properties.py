"""The indexed queue does what two plain lists do."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.matching import ReceiveQueue

MAX_POSTED, MAX_UNEXPECTED, MAX_BYTES = 6, 5, 12
NOTHING = memoryview(b"")

TAGS = st.sampled_from([0, 1, 2, 1 << 63])
IGNORES = st.sampled_from([0, 0, 0, 1, 2, 3, (1 << 64) - 1])
INITIATORS = st.integers(1, 2)
RECEIVES = st.tuples(st.just("post"), TAGS, IGNORES, st.none() | INITIATORS)
MESSAGES = st.tuples(st.just("message"), TAGS, INITIATORS, st.integers(0, 4))
CANCELS = st.tuples(st.just("cancel"), st.integers(0, 30))
DISCARDS = st.tuples(st.just("discard"), TAGS, IGNORES, st.none() | INITIATORS)


@dataclass
class Lists:
    """The definition of matching: search from the front."""

    receives: list[tuple[int, int, int | None, int]] = field(default_factory=list)
    messages: list[tuple[int, int, int, int]] = field(default_factory=list)

    @staticmethod
    def meet(receive: tuple[int, int, int | None, int], message: tuple[int, int, int, int]) -> bool:
        tag, ignore, initiator, _ = receive
        if initiator is not None and initiator != message[1]:
            return False
        return all((tag >> bit & 1) == (message[0] >> bit & 1) for bit in range(64) if not ignore >> bit & 1)

    def take_message(self, receive: tuple[int, int, int | None, int]) -> int | None:
        for message in self.messages:
            if self.meet(receive, message):
                self.messages.remove(message)
                return message[3]
        return None

    def take_receive(self, message: tuple[int, int, int, int]) -> int | None:
        for receive in self.receives:
            if self.meet(receive, message):
                self.receives.remove(receive)
                return receive[3]
        return None


@settings(max_examples=150, deadline=None)
@given(st.lists(RECEIVES | MESSAGES | RECEIVES | MESSAGES | CANCELS | DISCARDS, max_size=50))
def test_the_queue_does_what_plain_lists_do(steps: list[tuple[str, int, int, int]]) -> None:
    queue = ReceiveQueue(MAX_POSTED, MAX_UNEXPECTED, MAX_BYTES)
    lists = Lists()
    for name, (kind, *values) in enumerate(steps):
        match kind, values:
            case "post", (tag, ignore, initiator):
                expected = lists.take_message((tag, ignore, initiator, name))
                refused = expected is None and len(lists.receives) == MAX_POSTED
                try:
                    message = queue.post(NOTHING, name, tag, ignore, initiator)
                except UsageError:
                    assert refused
                else:
                    assert not refused
                    assert (None if message is None else message.content) == expected
                    if expected is None:
                        lists.receives.append((tag, ignore, initiator, name))
            case "message", (tag, initiator, stored):
                expected = lists.take_receive((tag, initiator, stored, name))
                receive = queue.match(tag, initiator)
                assert (None if receive is None else receive.context) == expected
                if expected is None:
                    room = MAX_BYTES - sum(message[2] for message in lists.messages)
                    fits = len(lists.messages) < MAX_UNEXPECTED and stored <= room
                    assert (queue.add_unexpected(tag, initiator, stored, name) is not None) == fits
                    if fits:
                        lists.messages.append((tag, initiator, stored, name))
            case "cancel", (context,):
                found = [receive for receive in lists.receives if receive[3] == context]
                lists.receives = [receive for receive in lists.receives if receive[3] != context]
                assert (queue.cancel(context) is not None) == bool(found)
            case "discard", (tag, ignore, initiator):
                message = queue.peek(tag, ignore, initiator)
                expected = lists.take_message((tag, ignore, initiator, name))
                assert (None if message is None else message.content) == expected
                assert message is None or queue.discard(message)
        assert queue.posted == len(lists.receives)
        assert queue.unexpected == len(lists.messages)
        assert queue.unexpected_bytes == sum(message[2] for message in lists.messages)
    assert [receive.context for receive in queue.cancel_all()] == [receive[3] for receive in lists.receives]
