"""In which order an endpoint sends what is due at one time: control packets, short messages, long ones."""

import pytest
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Priority
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import ControlType, Mode, PdsType

KEY = 3


class Conversation(WirePair):
    """Both have an established PDC to the other, and nothing to say."""

    def __init__(self, mode: Mode = Mode.RUD) -> None:
        super().__init__(payload_bytes=1024)
        self.mode = mode
        for fep in (self.a, self.b):
            fep.register(bytearray(100_000), Access.REMOTE_WRITE | Access.REMOTE_READ, JOB, KEY)
        writes = [
            near.write(to, b"x", RemoteBuffer(KEY), self.now, mode=mode)
            for near, to in ((self.ea, self.to_b), (self.eb, self.to_a))
        ]
        self.run(*writes)
        self.pass_time(100 * MS)

    def ask(self) -> None:
        """A request of `a` arrives at `b`, which now owes an acknowledgement."""
        self.ea.write(self.to_b, b"question", RemoteBuffer(KEY), self.now, mode=self.mode)
        for datagram in self.take(self.a):
            self.give(datagram)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_a_short_answer_goes_before_the_acknowledgement(mode: Mode) -> None:
    pair = Conversation(mode)
    pair.ask()
    pair.eb.write(pair.to_a, b"answer", RemoteBuffer(KEY), pair.now, mode=mode)
    answer, acknowledgement = pair.take(pair.b)
    assert answer.priority is Priority.DATA and acknowledgement.priority is Priority.CONTROL
    assert header(acknowledgement).type is PdsType.ACK_CC


def test_a_long_message_goes_after_the_acknowledgement() -> None:
    pair = Conversation()
    pair.ask()
    pair.eb.write(pair.to_a, bytes(5000), RemoteBuffer(KEY), pair.now)
    first, *others = pair.take(pair.b)
    assert header(first).type is PdsType.ACK_CC
    assert {item.priority for item in others} == {Priority.DATA}


def test_one_short_message_alone_goes_before_the_acknowledgements() -> None:
    pair = Conversation()
    pair.ask()
    for _ in range(3):
        pair.eb.write(pair.to_a, b"answer", RemoteBuffer(KEY), pair.now)
    order = [item.priority for item in pair.take(pair.b)]
    assert order == [Priority.DATA, Priority.CONTROL, Priority.DATA, Priority.DATA]


def test_a_single_place_is_the_acknowledgements() -> None:
    pair = Conversation()
    pair.ask()
    pair.eb.write(pair.to_a, b"answer", RemoteBuffer(KEY), pair.now)
    (first,) = pair.take(pair.b, limit=1)
    assert header(first).type is PdsType.ACK_CC


def test_what_closes_a_context_does_not_overtake_what_acknowledges_its_data() -> None:
    """The target would take data for lost that has arrived."""
    pair = Conversation()
    read = pair.ea.read(pair.to_b, bytearray(3000), RemoteBuffer(KEY), pair.now)
    for _ in range(8):
        for fep in (pair.a, pair.b):
            if read.done:
                break
            for datagram in pair.take(fep):
                pair.give(datagram)
    assert read.ok
    pair.a.close(pair.now)
    order = [header(item) for item in pair.take(pair.a)]
    kinds = [getattr(item, "control_type", item.type) for item in order]
    assert ControlType.CLOSE_CMD not in kinds or kinds.index(ControlType.CLOSE_CMD) > kinds.index(PdsType.ACK_CC)
    assert PdsType.ACK_CC in kinds
