"""Neighbours of traffic: without them packets overtake each other in the kernel, and runs resolve them first."""

import itertools
import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace, in_namespace
from testbed.base.linux.neighbours import forget_neighbour, read_neighbours
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.next_hops import NextHop, next_hops, resolve_next_hops
from testbed.lab.core.plan.lab_plan import PortPlan

pytestmark = [pytest.mark.netns, pytest.mark.frr]

BURST = 100
"""Datagrams, fewer than the kernel keeps for a neighbour (net.ipv4.neigh.default.unres_qlen_bytes)."""
MOST_BURSTS = 1000
PORT = 4791


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """Two hosts under each of two leaves."""
    model = shared_sandbox.model(segments=2, hosts=2, gpus=1, spines=1)
    shared_sandbox.deploy(model, k=1000.0)
    return RunningLab.open(model.name, shared_sandbox.state)


@pytest.fixture
def pair(lab: RunningLab) -> tuple[PortPlan, PortPlan]:
    nics = [host.nics[0] for host in lab.plan.hosts]
    return nics[0], nics[-1]


def forget(lab: RunningLab, hops: Sequence[NextHop]) -> None:
    def change() -> None:
        for hop in hops:
            enter_namespace(namespace_name(lab.name, hop.place))
            with closing(RouteSocket()) as route:
                route.submit([forget_neighbour(hop.ifindex, hop.address)])

    syscalls.in_thread(change)


def known(lab: RunningLab, hops: Sequence[NextHop]) -> list[bool]:
    def look() -> list[bool]:
        found = []
        for hop in hops:
            enter_namespace(namespace_name(lab.name, hop.place))
            with closing(RouteSocket()) as route:
                found.append(bool(read_neighbours(route).get((hop.ifindex, hop.address))))
        return found

    return syscalls.in_thread(look)


def udp_socket(lab: RunningLab, nic: PortPlan) -> socket.socket:
    def make() -> socket.socket:
        item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        item.bind((str(nic.address.ip), PORT))
        item.settimeout(0.5)
        return item

    return in_namespace(namespace_name(lab.name, nic.node), make)


def overtaken(sender: socket.socket, receiver: socket.socket) -> int:
    """Send a burst; how many of its datagrams came after a later one."""
    target = receiver.getsockname()
    for number in range(BURST):
        sender.sendto(number.to_bytes(4) + bytes(996), target)
    arrived = []
    try:
        while len(arrived) < BURST:
            arrived.append(int.from_bytes(receiver.recv(2048)[:4]))
    except TimeoutError:
        pass
    return sum(number < highest for number, highest in zip(arrived, itertools.accumulate(arrived, max), strict=True))


def cold_disorder(lab: RunningLab, hops: Sequence[NextHop], sender: socket.socket, receiver: socket.socket) -> bool:
    forget(lab, hops)
    return overtaken(sender, receiver) > 0


def test_bursts_to_neighbours_that_are_not_known_are_disordered_and_others_are_not(
    lab: RunningLab, pair: tuple[PortPlan, PortPlan]
) -> None:
    hops = next_hops(lab.plan, [pair])
    with closing(udp_socket(lab, pair[0])) as sender, closing(udp_socket(lab, pair[1])) as receiver:
        bursts = 1
        while not cold_disorder(lab, hops, sender, receiver):
            bursts += 1
            assert bursts <= MOST_BURSTS, "all arrived in order: this kernel needs no resolved neighbours"
        for _ in range(max(10, 3 * bursts)):
            forget(lab, hops)
            assert resolve_next_hops(lab.name, hops) == []
            assert overtaken(sender, receiver) == 0


def test_all_are_known_afterwards(lab: RunningLab, pair: tuple[PortPlan, PortPlan]) -> None:
    hops = next_hops(lab.plan, [pair])
    assert len(hops) == 4, "two hosts, two leaves"
    forget(lab, hops)
    assert not any(known(lab, hops))
    assert resolve_next_hops(lab.name, hops) == []
    assert all(known(lab, hops))


def test_who_does_not_answer_is_named(lab: RunningLab, pair: tuple[PortPlan, PortPlan]) -> None:
    (asked,) = (hop for hop in next_hops(lab.plan, [pair]) if hop.place == pair[0].peer.partition(":")[0])
    nobody = NextHop(place=asked.place, ifindex=asked.ifindex, address=asked.address + 99, of="nobody")
    assert resolve_next_hops(lab.name, [asked, nobody], patience_s=1.0) == [nobody]
