"""Flows of datagrams that run while something fails, and how long each of them was without service."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from waiting import until

from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.processes import kill_processes
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.routing import running_daemons, start_routing

PORT = 7000
INTERVAL_S = 0.01
FLOWS = 16
"""Over two ports and two leaves one of them has no flow at all once in 2^15 times."""


def udp_socket(lab: Any, node: str, address: str, port: int = 0) -> socket.socket:
    """A UDP socket of a node, of the version of IP that its address is of."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    opened = in_namespace(namespace_name(lab.name, node), lambda: socket.socket(family, kind))
    opened.bind((address, port))
    return opened


class Flows:
    """Flows of numbered datagrams from one address to another, a datagram of each flow every 10 ms, one way."""

    def __init__(self, lab: Any, source: tuple[str, str], destination: tuple[str, str]) -> None:
        """`source` and `destination` are nodes, each with an address of its own."""
        self._sink = udp_socket(lab, *destination)
        self._sources = [udp_socket(lab, *source) for _ in range(FLOWS)]
        self._destination = self._sink.getsockname()
        self.arrived: list[set[int]] = [set() for _ in range(FLOWS)]
        self.sent_at: list[float] = []

    @property
    def sent(self) -> int:
        """How many datagrams of each flow were sent."""
        return len(self.sent_at)

    def send(self) -> None:
        now = time.monotonic()
        for number, source in enumerate(self._sources):
            with suppress(OSError):  # no route for the moment: lost as one in the network is
                source.sendto(b"%d %d" % (number, self.sent), self._destination)
        self.sent_at.append(now)

    def receive(self) -> None:
        with suppress(BlockingIOError):
            while True:
                number, sequence = map(int, self._sink.recv(64).split())
                self.arrived[number].add(sequence)

    def outage_s(self) -> float:
        """The longest time over which all datagrams of one flow were lost, from the first one to the last."""
        longest_s = 0.0
        sent_at = self.sent_at[:]  # more may be sent meanwhile
        for arrived in self.arrived:
            lost = [sequence not in arrived for sequence in range(len(sent_at))]
            for gone, run in itertools.groupby(range(len(sent_at)), key=lost.__getitem__):
                if gone:
                    sequences = list(run)
                    longest_s = max(longest_s, sent_at[sequences[-1]] - sent_at[sequences[0]] + INTERVAL_S)
        return longest_s

    def all_arrive(self, since: int) -> bool:
        return all(max(arrived, default=-1) > since for arrived in self.arrived)

    def close(self) -> None:
        for opened in (*self._sources, self._sink):
            opened.close()


class Running:
    """Flows that run both ways until told to stop, in a thread of their own."""

    def __init__(self, flows: list[Flows]) -> None:
        self.flows = flows
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.well()

    def _run(self) -> None:
        following = time.monotonic()
        while not self._stopped.is_set():
            for flow in self.flows:
                flow.send()
                flow.receive()
            # What a busy machine has kept us from sending is not sent in one go: ports are slow, and queues short.
            now = time.monotonic()
            following = max(following + INTERVAL_S, now)
            time.sleep(following - now)

    def well(self) -> None:
        """Wait until each flow has got something across that was sent from now on."""
        marks = [flow.sent for flow in self.flows]
        until(lambda: all(flow.all_arrive(mark) for flow, mark in zip(self.flows, marks, strict=True)), "all flows")

    def stop(self) -> float:
        """The longest outage of all, in seconds, once what is under way has arrived."""
        self.well()
        self._stopped.set()
        self._thread.join()
        until(self._all_received, "the last datagrams")
        return max(flow.outage_s() for flow in self.flows)

    def _all_received(self) -> bool:
        for flow in self.flows:
            flow.receive()
        return all(flow.all_arrive(flow.sent - 2) for flow in self.flows)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for flow in self.flows:
            flow.close()


Place = tuple[str, str]
"""A node, and an address of its own."""


@contextmanager
def running(lab: Any, pairs: Sequence[tuple[Place, Place]]) -> Iterator[Running]:
    """Flows from place to place that run until the end of the block, whatever happens there."""
    with ExitStack() as opened:
        flows = []
        for source, destination in pairs:
            flows.append(Flows(lab, source, destination))
            opened.callback(flows[-1].close)
        under_way = Running(flows)
        opened.callback(under_way.close)
        yield under_way


@contextmanager
def short_outage(
    lab: Any, pairs: Sequence[tuple[Place, Place]], whole: Callable[[Any], bool], what: str, limit_s: float
) -> Iterator[Running]:
    """Flows that run meanwhile. Afterwards the lab is `whole` again, and none was without service for `limit_s`."""
    with running(lab, pairs) as flows:
        yield flows
        until(lambda: whole(lab), f"all is there again after {what}")
        outage_s = flows.stop()
        worst = {
            f"{source[1]} to {target[1]}": round(1000 * flow.outage_s())
            for (source, target), flow in zip(pairs, flows.flows, strict=True)
        }
    print(f"{what}: {outage_s * 1000:.0f} ms; {worst}")
    assert outage_s < limit_s


@contextmanager
def ports_down(lab: Any, *ports: str) -> Iterator[None]:
    """Ports (`NODE:IF`) are down, and up again afterwards."""
    with LinkControl(lab) as control:
        try:
            for port in ports:
                control.set(port, LinkChange(up=False))
            yield
        finally:
            for port in ports:
                control.reset(port)


@contextmanager
def switch_gone(lab: Any, node: str) -> Iterator[None]:
    """All ports of a switch are down and its routing daemons killed; it is there again afterwards."""
    try:
        with ports_down(lab, *(f"{node}:{port.name}" for port in lab.plan.ports if port.node == node)):
            kill_processes(running_daemons(lab, node))
            yield
    finally:
        start_routing(lab, node)
