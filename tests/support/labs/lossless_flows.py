"""Flows of numbered packets of a lossless class, as fast as NICs take them, that run while a lab is changed.

Several hosts send to one: its switch pauses the fabric behind it, and that the hosts, so that every packet waits
somewhere, and none may be lost. Sessions of BGP are looked at besides: who was not concerned never went down.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from switch_ports import PAYLOAD, PORT
from waiting import until

from testbed.base.linux import vty
from testbed.base.linux.namespaces import in_namespace
from testbed.lab.core.deploy.live import RunningLab

_SO_RCVBUFFORCE = 33
_RECEIVE_BYTES = 1 << 26
_SEND_BYTES = 150_000
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The packets of all flows: how many were sent, and how many of those did not arrive, or more than once."""

    sent: int
    missing: int
    repeated: int


class LosslessFlows:
    """Flows from several hosts to one, in threads of their own until `stop`."""

    def __init__(self, lab: RunningLab, sources: Sequence[str], destination: str, *, dscp: int, interface: str) -> None:
        address = lab.port(destination, interface).address
        assert address is not None
        self._stopped = threading.Event()
        self._sent: Counter[int] = Counter()
        self._arrived: Counter[tuple[int, int]] = Counter()
        self._sink = in_namespace(lab.namespace(destination), _sink)
        self._senders = [
            in_namespace(lab.namespace(source), lambda: _sender(str(address.ip), dscp)) for source in sources
        ]
        works = [lambda flow=flow: self._send(flow) for flow in range(len(sources))]
        self._threads = [threading.Thread(target=work) for work in (*works, self._receive)]
        for thread in self._threads:
            thread.start()
        until(lambda: len({flow for flow, _ in list(self._arrived)}) == len(sources), "all flows arrive")

    def _send(self, flow: int) -> None:
        rest, sender = bytes(PAYLOAD - 8), self._senders[flow]
        while not self._stopped.is_set():
            sender.send(flow.to_bytes(4, "big") + self._sent[flow].to_bytes(4, "big") + rest)
            self._sent[flow] += 1

    def _receive(self) -> None:
        idle_since = time.monotonic()
        while not self._stopped.is_set() or time.monotonic() - idle_since < _PATIENCE_S:
            with contextlib.suppress(TimeoutError):
                data = self._sink.recv(2048)
                self._arrived[int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")] += 1
                idle_since = time.monotonic()
            if self._stopped.is_set() and self._complete():
                return

    def _complete(self) -> bool:
        senders = self._threads[:-1]
        return not any(thread.is_alive() for thread in senders) and len(self._arrived) == self._sent.total()

    def stop(self) -> Account:
        """End the flows, and return what became of them once everything has arrived, or nothing does any more."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        expected = {(flow, number) for flow, sent in self._sent.items() for number in range(sent)}
        return Account(
            sent=len(expected),
            missing=len(expected - self._arrived.keys()),
            repeated=sum(count - 1 for count in self._arrived.values()),
        )

    @property
    def sent(self) -> int:
        """How many packets were sent so far."""
        return self._sent.total()

    def close(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        for opened in (*self._senders, self._sink):
            opened.close()


def _sink() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    opened.bind(("", PORT))
    opened.settimeout(0.2)
    return opened


def _sender(address: str, dscp: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
    opened.connect((address, PORT))
    opened.settimeout(_PATIENCE_S)
    return opened


@contextlib.contextmanager
def lossless_flows(
    lab: RunningLab, sources: Sequence[str], destination: str, *, dscp: int, interface: str = "rail1"
) -> Iterator[LosslessFlows]:
    """Flows that run until `stop`, or until the end of the block."""
    with ExitStack() as opened:
        flows = LosslessFlows(lab, sources, destination, dscp=dscp, interface=interface)
        opened.callback(flows.close)
        yield flows


Session = tuple[str, str]
"""A node, and its interface to the neighbour."""


def established(lab: RunningLab) -> dict[Session, tuple[int, int]]:
    """How often each session of BGP that is up came up, and how often it went down, as bgpd counts."""
    found = {}
    for speaker in lab.plan.speakers:
        answer = vty.ask_json(lab.run_directory(speaker.node), "bgpd", "show bgp ipv4 unicast summary json")
        for interface, peer in answer.get("ipv4Unicast", answer).get("peers", {}).items():
            if peer["state"] == "Established":
                found[speaker.node, interface] = peer["connectionsEstablished"], peer["connectionsDropped"]
    return found
