"""The guards of the ports of switches that hosts are on, as the file asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Guard(StrEnum):
    """A defence at an access port. What it drops is counted by port under its name."""

    SOURCE = "source"
    """IPv4 packets whose source address is not the one planned for the port (RFC 2827), and IPv6 packets whose source
    is not the link-local address of its host."""
    MAC = "mac"
    """Frames whose source MAC address is not the planned one: the port learns one address and no other."""
    ARP = "arp"
    """ARP packets whose sender is not the planned pair of addresses (dynamic ARP inspection), and IPv6 neighbour
    solicitations and advertisements (RFC 4861) for another address than the host's link-local one."""
    SERVERS = "servers"
    """Messages of servers and routers: DHCP answers, IPv6 router advertisements (RFC 6105) and redirects."""
    CONTROL = "control"
    """IPv4 packets to an address of a switch, but ICMP echo with the host's gateway, and frames to the link-local
    group addresses of IEEE 802.1Q."""
    VLAN = "vlan"
    """Frames with a VLAN tag: an access port has one network."""
    STORM = "storm"
    """Broadcast, multicast and unknown unicast above a rate."""


STORM_PPS = 200
"""Packets a second of a port, in lab time, that may be flooded; half as many more in a burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The guards of a network's access ports. `storm_pps` counts packets a second in lab time, with `STORM` alone."""

    kinds: tuple[Guard, ...] = ()
    storm_pps: int = STORM_PPS

    @classmethod
    def all(cls) -> Self:
        return cls(kinds=tuple(Guard))

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def __contains__(self, guard: object) -> bool:
        return guard in self.kinds


NO_GUARDS = Guards()
