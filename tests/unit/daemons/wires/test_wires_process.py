"""The process of cut links: however much it is sent, it comes to its own work again."""

from testbed.daemons.wires.beats import Beats
from testbed.daemons.wires.process import Wires

KEY = b"k" * 32


class Sent:
    """A socket at which these messages wait, and then junk without an end, or nothing."""

    def __init__(self, *messages: bytes, flood: bool) -> None:
        self._messages = list(messages)
        self._flood = flood

    def recv(self, _size: int) -> bytes:
        if self._messages:
            return self._messages.pop(0)
        if self._flood:
            return b"x" * 40
        raise BlockingIOError


def heard(sent: Sent) -> bool:
    wires = object.__new__(Wires)
    wires._socket = sent  # type: ignore[assignment]
    wires._beats = Beats("a", KEY, ["b"], life=1)
    return wires._hear()


def test_a_flood_does_not_keep_it_from_its_work() -> None:
    assert not heard(Sent(flood=True))


def test_it_tells_whether_it_heard_anything_new() -> None:
    there = Beats("b", KEY, ["a"], life=1)
    assert heard(Sent(there.beat([]), b"junk", flood=False))
    assert heard(Sent(there.beat([3]), flood=True))
    assert not heard(Sent(b"junk", flood=False)) and not heard(Sent(flood=False))
