"""ECMP, and all that can go wrong with a link or a peer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt

import pytest
from simulated_topologies import leaf_spine, path, point_to_point, totals

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, Impairments, LinkSettings

GBPS = 10**9
LINK = LinkSettings(rate_bps=GBPS, delay_ns=1000)
A, B = "10.0.0.1", "10.0.0.2"
SLOT_NS = (100 + 66) * 8


class Host:
    """Sends 100 bytes `count` times, numbered, the number also being the entropy; every third is CONTROL."""

    def __init__(self, address: str, remote: str = "", count: int = 0) -> None:
        self.address = address
        self.remote = remote
        self.count = count
        self.sent = 0
        self.arrived: list[tuple[int, Incoming]] = []

    @property
    def numbers(self) -> list[int]:
        return [int.from_bytes(incoming.data[:4], "big") for _, incoming in self.arrived]

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.arrived += [(now, datagram) for datagram in datagrams]

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if self.sent == self.count:
            return []
        self.sent += 1
        priority = Priority.DATA if self.sent % 3 else Priority.CONTROL
        return [Outgoing(self.remote, self.sent, priority, self.sent.to_bytes(4, "big"), bytes(96))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        raise AssertionError("it has no timer")


def impaired(count: int, impairments: Impairments, seed: int = 0) -> tuple[Host, FabricNetwork]:
    a, b = Host(A, B, count), Host(B)
    line = LinkSettings(rate_bps=GBPS, delay_ns=1000, impairments=impairments)
    network = point_to_point(a, b, link=LINK, overrides={f"{A}->{B}": line}, seed=seed)
    network.run()
    return b, network


def two_leaves(
    count: int, spines: int = 4, seed: int = 0, overrides: Mapping[str, LinkSettings] | None = None
) -> tuple[Host, Host, FabricNetwork]:
    a, b = Host(A, B, count), Host(B)
    return a, b, leaf_spine([a, b], 2, spines, link=LINK, overrides=overrides, seed=seed)


def uplinks(network: FabricNetwork) -> list[int]:
    return [line.frames for name, line in network.lines.items() if name.startswith("leaf0->spine")]


@pytest.mark.parametrize("spines", [2, 3, 8])
def test_entropies_spread_evenly_over_the_uplinks(spines: int) -> None:
    """Within 4.5 standard deviations of an even spread, consecutive entropies as they are."""
    count = 3000
    _, b, network = two_leaves(count, spines)
    network.run()
    share = 1 / spines
    assert sum(uplinks(network)) == count == len(b.arrived)
    for frames in uplinks(network):
        assert abs(frames - count * share) <= 4.5 * sqrt(count * share * (1 - share))


def test_path_of_an_entropy_is_fixed_and_told_beforehand() -> None:
    _, _, network = two_leaves(64)
    expected = Counter(path(network, A, B, entropy)[1].name for entropy in range(1, 65))
    network.run()
    assert expected == {name: line.frames for name, line in network.lines.items() if name.startswith("leaf0->spine")}
    assert [line.name for line in path(network, B, A, 1)][::3] == [f"{B}->leaf1", f"leaf0->{A}"]


def test_another_seed_hashes_otherwise_and_so_does_the_way_back() -> None:
    one, other = two_leaves(0)[2], two_leaves(0, seed=1)[2]
    paths = [[path(network, A, B, entropy)[1].name for entropy in range(1, 100)] for network in (one, other)]
    back = [path(one, B, A, entropy)[2].name for entropy in range(1, 100)]
    assert paths[0] != paths[1]
    assert [name.split("->")[1] for name in paths[0]] != [name.split("->")[0] for name in back]


def test_dead_uplink_swallows_its_share_in_silence() -> None:
    dead = LinkSettings(rate_bps=GBPS, delay_ns=1000, up=False)
    _, b, network = two_leaves(400, overrides={"leaf0->spine2": dead})
    doomed = {entropy for entropy in range(1, 401) if path(network, A, B, entropy)[1].name == "leaf0->spine2"}
    network.run()
    assert set(b.numbers) == set(range(1, 401)) - doomed
    assert totals(network).blackholed == len(doomed) > 50


def test_degraded_uplink_is_slow_and_the_others_are_not() -> None:
    slow = LinkSettings(rate_bps=GBPS // 10, delay_ns=1000)
    _, b, network = two_leaves(400, overrides={"leaf0->spine2": slow})
    network.run()
    uplinks = {name: port for name, port in network.outputs.items() if "leaf0->spine" in name}
    queues = {name: max(queue.max_bytes for queue in port.queues) for name, port in uplinks.items()}
    assert queues.pop("leaf0->spine2") > 5000
    assert set(queues.values()) == {100 + 66}, "the packet that is being sent"
    assert len(b.arrived) == 400


def test_link_that_goes_down_and_up_again_at_given_times() -> None:
    a, b = Host(A, B, 30), Host(B)
    network = point_to_point(a, b, link=LINK)
    network.at(10 * SLOT_NS - 1, lambda now: network.set_up(f"{A}->{B}", False))
    network.at(20 * SLOT_NS - 1, lambda now: network.set_up([f"{A}->{B}"], True))
    network.run()
    assert b.numbers == [*range(1, 11), *range(21, 31)]
    assert network.lines[f"{A}->{B}"].blackholed == 10


def test_every_nth_is_lost() -> None:
    b, network = impaired(20, Impairments(loss_every=4))
    assert b.numbers == [number for number in range(1, 21) if number % 4]
    assert totals(network).lost == 5


@pytest.mark.parametrize("loss", [0.01, 0.3, 1.0])
def test_loss_probability(loss: float) -> None:
    count = 3000
    b, network = impaired(count, Impairments(loss=loss))
    lost = totals(network).lost
    assert abs(lost - count * loss) <= 4.5 * sqrt(count * loss * (1 - loss))
    assert len(b.arrived) == count - lost


def test_scripted_drop_sees_the_datagram() -> None:
    b, _ = impaired(6, Impairments(drop=lambda frame: frame.data[3] in {2, 3}))
    assert b.numbers == [1, 4, 5, 6]


def test_impairments_of_some_priorities_leave_the_others_alone() -> None:
    b, _ = impaired(30, Impairments(loss=1.0, priorities=frozenset({Priority.CONTROL})))
    assert b.numbers == [number for number in range(1, 31) if number % 3]


def test_duplicates_arrive_twice() -> None:
    b, network = impaired(50, Impairments(duplicate=1.0))
    assert b.numbers == [number for number in range(1, 51) for _ in range(2)]
    assert totals(network).duplicated == 50


def test_reordered_datagrams_arrive_late_by_no_more_than_told() -> None:
    b, network = impaired(500, Impairments(reorder=0.1, reorder_delay_ns=10 * SLOT_NS))
    late = {number: now - (number * SLOT_NS + 1000) for (now, _), number in zip(b.arrived, b.numbers, strict=True)}
    assert sorted(late) == list(range(1, 501))
    assert b.numbers != sorted(b.numbers)
    assert sum(1 for ns in late.values() if ns) == totals(network).reordered > 20
    assert 0 <= min(late.values()) < max(late.values()) <= 10 * SLOT_NS


def test_corruption_flips_as_many_bits_as_told() -> None:
    b, network = impaired(300, Impairments(corrupt=0.5, corrupt_bits=3))
    flips = []
    for number, (_, incoming) in enumerate(b.arrived, start=1):
        sent = number.to_bytes(4, "big") + bytes(96)
        assert len(incoming.data) == 100
        flips.append((int.from_bytes(sent, "big") ^ int.from_bytes(incoming.data, "big")).bit_count())
    assert set(flips) == {0, 3}
    assert flips.count(3) == totals(network).corrupted


def test_impairments_begin_and_end_at_given_times_and_their_counts_stay() -> None:
    a, b = Host(A, B, 30), Host(B)
    network = point_to_point(a, b, link=LINK)
    network.at(10 * SLOT_NS - 1, lambda now: network.impair(f"{A}->{B}", Impairments(loss=1.0)))
    network.at(20 * SLOT_NS - 1, lambda now: network.impair(f"{A}->{B}", None))
    network.run()
    assert b.numbers == [*range(1, 11), *range(21, 31)]
    assert totals(network).lost == 10


def test_killed_peer_refuses_and_its_successor_hears_the_rest() -> None:
    a, b, successor = Host(A, B, 30), Host(B), Host(B, A, 2)
    network = point_to_point(a, b, link=LINK)
    network.at(10 * SLOT_NS, lambda now: network.nics[B].kill())
    network.at(20 * SLOT_NS, lambda now: network.nics[B].restart(successor))
    network.run()
    assert (b.numbers[0], successor.numbers[-1]) == (1, 30)
    assert len(b.arrived) + totals(network).refused + len(successor.arrived) == 30
    assert totals(network).refused == 10
    assert a.numbers == [1, 2]


def test_killed_sender_falls_silent_but_what_it_sent_arrives() -> None:
    a, b = Host(A, B, 30), Host(B)
    network = point_to_point(a, b, link=LINK)
    network.at(10 * SLOT_NS - 1, lambda now: network.nics[A].kill())
    network.run()
    assert b.numbers == list(range(1, 11))
    assert a.sent == 10


def test_restart_while_the_line_is_busy_does_not_send_faster_than_it() -> None:
    a, b = Host(A, B, 30), Host(B)
    network = point_to_point(a, b, link=LINK)

    def bounce(now: int) -> None:
        network.nics[A].kill()
        network.nics[A].restart(Host(A, B, 5))

    network.at(10 * SLOT_NS - 1, bounce)
    network.run()
    assert b.numbers == [*range(1, 11), *range(1, 6)]
    times = [now for now, _ in b.arrived]
    assert [later - sooner for sooner, later in pairwise(times)] == [SLOT_NS] * 14
