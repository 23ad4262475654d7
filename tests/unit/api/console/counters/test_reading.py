"""Which namespaces are asked for the counters of plain ports, and how their answers are taken apart."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.api.console.counters.link_statistics import RX_BYTES, TX_BYTES, read_statistics
from testbed.api.console.counters.reading import _cover, _index


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40), st.integers(0, 5))
def test_every_port_is_read_in_its_own_namespace_or_at_its_other_end(links: list[tuple[int, int]], alone: int) -> None:
    places: dict[str, set[int]] = {}
    peers = np.full(2 * len(links) + alone, -1, np.int64)
    for number, ends in enumerate(links):
        for which, place in enumerate(ends):
            places.setdefault(f"n{place}", set()).add(2 * number + which)
            peers[2 * number + which] = 2 * number + 1 - which
    for port in range(2 * len(links), 2 * len(links) + alone):  # their other ends have queues of the data path
        places.setdefault("n0", set()).add(port)
    asked = _cover(places, peers)
    read = {port for place in asked for port in places[place]}
    read |= {int(peers[port]) for port in read}
    assert set(range(len(peers))) <= read
    assert len(asked) == len(set(asked))


def test_leaves_are_asked_and_neither_hosts_nor_spines() -> None:
    places = {"leaf": {1, 2, 3, 4}, "spine": {0}, "h1": {5}, "h2": {6}, "h3": {7}}
    peers = np.array([1, 0, 5, 6, 7, 2, 3, 4], np.int64)
    assert _cover(places, peers) == ["leaf"]


def test_interfaces_that_are_no_ports_have_no_place() -> None:
    assert _index({3: 10, 1: 11}).tolist() == [-1, 11, -1, 10]


class FakeRoute:
    """Answers a dump with datagrams of the kernel's form (struct if_stats_msg of linux/if_link.h)."""

    def __init__(self, datagrams: list[bytes]) -> None:
        self._datagrams = datagrams

    def dump_whole(self, kind: int, body: bytes) -> list[bytes]:
        return self._datagrams


def answer(ifindex: int, *, more: bytes = b"") -> bytes:
    counters = struct.pack("=24Q", *(ifindex * 100 + column for column in range(24)))
    body = struct.pack("=4xI4xHH", ifindex, 4 + len(counters), 1) + counters + more
    return struct.pack("=IHHII", 16 + len(body), 92, 2, 7, 0) + body


DONE = struct.pack("=IHHIII", 20, 3, 2, 7, 0, 0)


def test_answers_of_one_size_and_of_others_are_read_alike() -> None:
    route = FakeRoute([answer(1) + answer(2), answer(5, more=bytes(8)) + answer(3) + DONE])
    indexes, counters = read_statistics(route)  # type: ignore[arg-type]
    assert indexes.tolist() == [1, 2, 5, 3]
    assert counters[:, RX_BYTES].tolist() == [102, 202, 502, 302]
    assert counters[:, TX_BYTES].tolist() == [103, 203, 503, 303]
