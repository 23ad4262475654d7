"""A bridge that both leaves of a pair have, as one of them tells its kernel: where MACs are, and which addresses.

What the kernel was told is remembered here, so that it is told changes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from testbed.daemons.lag.configuration import PairedBridge
from testbed.daemons.lag.kernel import Kernel

TOLD_AGAIN_S = 10.0
"""When a kernel is told again what it has forgotten. Until then it may hear of the host itself; and who tries whether a
lie is believed before the truth (`testbed.lab.checks.isolation`) has the time for it."""


class BridgeTables:
    """The stations (MACs at ports) and neighbours of one bridge."""

    def __init__(self, bridge: PairedBridge, kernel: Kernel) -> None:
        """`kernel` is that of the bridge's network namespace."""
        self.bridge = bridge
        self.kernel = kernel
        self._stations: dict[str, int] = {}
        """The port at which the bridge was told that a MAC is."""
        self._neighbours: dict[str, str] = {}
        self._again: dict[str, float] = {}
        """When a neighbour is told that the kernel has forgotten, by its address."""
        self._local: dict[str, int] = {}
        """The port at which the bridge has learned itself that a MAC is."""

    def key(self, of: object) -> str:
        """The key of a MAC or an address on this bridge between the leaves of the pair: tenants may have the same."""
        return f"{self.bridge.vlan}/{of}"

    def learned(self, mac: str, port: int) -> None:
        """Take note that the bridge has learned where a MAC is, which takes the place of what it was told."""
        self._local[mac] = port
        self._stations.pop(mac, None)

    def unlearned(self, mac: str, port: int) -> bool:
        """Take note that the bridge has forgotten a MAC at a port; whether that is where it was."""
        if self._local.get(mac) != port:
            return False
        del self._local[mac]
        return True

    def heard_neighbour(self, address: IPv4Address | IPv6Address) -> None:
        """Take note that the kernel has heard of a neighbour itself."""
        self._neighbours.pop(str(address), None)
        self._again.pop(str(address), None)

    def forgot_neighbour(self, address: IPv4Address | IPv6Address, now: float) -> None:
        """Take note that the kernel has forgotten a neighbour, as when its table is full."""
        if str(address) in self._neighbours:
            self._again[str(address)] = now + TOLD_AGAIN_S

    def flushed(self) -> None:
        """Take note that the kernel may have forgotten what it was told."""
        self._stations, self._neighbours, self._again = {}, {}, {}

    def next_due(self) -> float:
        """When `set_neighbours` has something to tell again."""
        return min(self._again.values(), default=float("inf"))

    def dropped(self, port: int) -> list[str]:
        """Take note that a port is in the bridge no more; the MACs that the bridge had learned there."""
        gone = [mac for mac, place in self._local.items() if place == port]
        for mac in gone:
            del self._local[mac]
        self._stations = {mac: place for mac, place in self._stations.items() if place != port}
        return gone

    def taken_down(self) -> None:
        """Take note that the bridge was down, and has nothing left."""
        self.flushed()
        self._local = {}

    def set_stations(self, ports: Mapping[str, int]) -> None:
        """Have the bridge send what is for a MAC out of this port, for all of these and no others."""
        for mac, port in ports.items():
            if self._stations.get(mac, self._local.get(mac)) != port and self.kernel.set_station(mac, port):
                self._stations[mac] = port
        for mac in [mac for mac in self._stations if mac not in ports]:
            self.kernel.forget_station(mac, self._stations.pop(mac))

    def set_neighbours(self, macs: Mapping[str, str], now: float) -> None:
        """Have the kernel know these neighbours by their addresses."""
        for address in [address for address, due in self._again.items() if due <= now]:
            del self._again[address]
            self._neighbours.pop(address, None)
        for address, mac in macs.items():
            if self._neighbours.get(address) != mac:
                bridge, announced = self.bridge.ifindex, bool(self.bridge.vlan)
                if self.kernel.set_neighbour(bridge, ip_address(address), mac, announced=announced):
                    self._neighbours[address] = mac
