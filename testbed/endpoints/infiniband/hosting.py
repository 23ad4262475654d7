"""The ground of a worker's queue pairs on the HCAs of a subnet that is up (`worker.datagrams.hosting.Hosting`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from testbed.endpoints.infiniband.hca_port import HcaPort, Peer
from testbed.endpoints.loop import Endpoint, Loop
from testbed.endpoints.pacing import Pacer
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rnic import Rnic

_AHEAD_OF_LINE = 1.02
"""An RNIC is asked for packets a little faster than its line takes them: the line itself keeps to its rate."""


class HcaHosting:
    """RNICs at the HCAs of one worker, each driven by the worker's loop."""

    def __init__(self, seed: int, loop: Loop, tick_ns: int, on_failed: Callable[[str], None]) -> None:
        self._random = Random(seed)
        self._loop = loop
        self._on_failed = on_failed
        self._ports: dict[str, tuple[Rnic, HcaPort]] = {}
        loop.set_tick(tick_ns)

    def open_rnic(self, address: str, config: RoceConfig, socket: Path, peers: Mapping[str, Peer]) -> Rnic:
        """Open the HCA whose socket is at a path, and return its RNIC. Raises `OSError`."""
        port = HcaPort(socket, peers, self._loop, lambda: self._on_failed("the wires of the subnet have ended"))
        rnic = Rnic(address, config, Random(self._random.getrandbits(64)), time.monotonic_ns(), later_icrc=True)
        rnic.unlimited_bps = float(config.link_rate_bps)
        port.attach(rnic)
        self._ports[address] = (rnic, port)
        pacer = Pacer(round(config.link_rate_bps * _AHEAD_OF_LINE), config.packet_bytes)
        self._loop.add(rnic, port, None, pacer, rnic.on_room)
        return rnic

    def now(self) -> int:
        """Return the time of this machine's clock (ns)."""
        return time.monotonic_ns()

    def memory(self, size: int) -> memoryview:
        """Return memory for transfers that carry nothing of their own."""
        return memoryview(bytearray(size))

    def touch(self, endpoint: Endpoint) -> None:
        """An RNIC has been given work."""
        self._loop.touch(endpoint)

    def received_bytes(self, address: str) -> int:
        """Return how many bytes of frames have come for an RNIC."""
        return self._ports[address][1].counters.received_bytes

    def counters(self, address: str) -> Mapping[str, int]:
        """Return what a port has counted: `port_blocked` is how often a lane had no room."""
        port = self._ports[address][1]
        return {
            "socket_drops": port.counters.dropped,
            "datagrams_received": port.counters.received,
            "datagrams_sent": port.counters.sent,
            "port_blocked": port.counters.blocked,
            "port_wrong": port.wrong,
        }

    def first_packet_counter(self) -> int:
        """Return where counters begin that no earlier life may have used: these have none."""
        return 0

    def close(self) -> None:
        """Give all HCAs back."""
        for rnic, port in self._ports.values():
            self._loop.remove(rnic)
            port.close()
        self._ports.clear()
