"""The emulated wire at the receiving end: how long, in which order, and what it says of itself."""

import pytest

from testbed.endpoints.wire_delay import DelayLine
from testbed.protocols.datagram import Incoming

MS = 1_000_000


def incoming(number: int, remote: str = "10.0.0.1") -> Incoming:
    return Incoming(remote, number, number.to_bytes(4), ce=bool(number % 2), length=number, last_hop=bool(number % 3))


def entropies(datagrams: list[Incoming]) -> list[int]:
    return [item.entropy for item in datagrams]


def test_datagrams_come_out_when_they_are_due_and_not_before() -> None:
    line = DelayLine(2 * MS)
    assert (line.next_due(), line.take(10 * MS)) == (None, [])
    line.hold([incoming(1), incoming(2)], now=1 * MS)
    line.hold([incoming(3)], now=2 * MS)
    assert line.next_due() == 3 * MS
    assert line.take(3 * MS - 1) == []
    assert line.take(3 * MS) == [incoming(1), incoming(2)]
    assert (line.next_due(), len(line)) == (4 * MS, 1)
    assert line.take(9 * MS) == [incoming(3)]
    assert (line.next_due(), len(line)) == (None, 0)


def test_the_longest_prefix_decides() -> None:
    line = DelayLine({"10.0.0.0/8": 3 * MS, "10.1.0.0/16": 1 * MS, "fd00::/8": 7}, default_ns=5)
    assert line.delay_of("10.2.0.1") == 3 * MS
    assert line.delay_of("10.1.255.1") == 1 * MS
    assert line.delay_of("192.0.2.1") == 5
    assert line.delay_of("fd00::1") == 7
    assert line.delay_of("2001:db8::1") == 5


def test_the_least_delay_counts_others_once_they_are_known() -> None:
    line = DelayLine({"10.0.0.1": 3 * MS, "10.0.0.2": 2 * MS})
    assert line.least_ns == 2 * MS
    line.hold([incoming(1), incoming(2, "10.0.0.9")], now=0)
    assert line.least_ns == 0
    assert DelayLine(4 * MS).least_ns == 4 * MS


def test_order_is_by_due_time_and_then_by_arrival() -> None:
    line = DelayLine({"10.0.0.1/32": 2 * MS, "10.0.0.2/32": 1 * MS}, default_ns=1 * MS)
    line.hold([incoming(1, "10.0.0.1"), incoming(2, "10.0.0.2"), incoming(3, "10.0.0.1")], now=0)
    line.hold([incoming(4, "10.0.0.2"), incoming(5, "10.0.0.9"), incoming(6, "10.0.0.1")], now=1 * MS)
    assert entropies(line.take(1 * MS)) == [2]
    # Due at 2 ms: 1 and 3, which came first, then 4 and 5.
    assert entropies(line.take(5 * MS)) == [1, 3, 4, 5, 6]


def test_the_data_is_a_copy() -> None:
    line = DelayLine(MS)
    memory = bytearray(b"before")
    line.hold([Incoming("10.0.0.1", 1, memoryview(memory))], now=0)
    memory[:] = b"after!"
    (item,) = line.take(MS)
    assert item.data == b"before"


def test_no_delay_is_no_delay() -> None:
    line = DelayLine(0)
    line.hold([incoming(1)], now=7)
    assert line.next_due() == 7
    assert entropies(line.take(7)) == [1]
    assert line.latest_ns == 0


def test_it_owns_up_to_what_it_could_not_do() -> None:
    line = DelayLine(MS, capacity=2)
    line.hold([incoming(1), incoming(2), incoming(3)], now=0)
    assert (len(line), line.overruns) == (2, 1)
    line.take(MS + 300)
    line.hold([incoming(4)], now=2 * MS)
    assert entropies(line.take(3 * MS + 10)) == [4]
    assert line.latest_ns == 300


@pytest.mark.parametrize("delay", [-1, {"10.0.0.0/8": -1}, {"10.0.0.1/8": 1}, {"host": 1}])
def test_nonsense_is_refused(delay: int | dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"negative|host bits|does not appear"):
        DelayLine(delay)
