"""The kernel of one network namespace as link aggregation reads, sets and hears it (rtnetlink(7))."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.neighbours import (
    NTF_EXT_LEARNED,
    NUD_DELAY,
    NUD_FAILED,
    NUD_NOARP,
    NUD_PERMANENT,
    NUD_PROBE,
    NUD_REACHABLE,
    NUD_STALE,
    RTM_DELNEIGH,
    RTM_NEWNEIGH,
    Neighbour,
    dump_neighbours,
    forget_station,
    parse_neighbour,
    set_neighbour,
    set_station,
)
from testbed.base.linux.routes import bgp_routes
from testbed.base.linux.rtnetlink import IFINFOMSG, RouteSocket

_HEARD = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE
_HOST_LENGTH = 32
BEHIND_QUEUES = 2
"""The priority of filters: those of queues have 1."""


@dataclass(frozen=True, slots=True)
class CarrierChange:
    """A link has, or has no, carrier."""

    ifindex: int
    up: bool


@dataclass(frozen=True, slots=True)
class StationChange:
    """A bridge has learned a MAC at a port, or forgotten it."""

    ifindex: int
    mac: str
    known: bool


@dataclass(frozen=True, slots=True)
class NeighbourChange:
    """A neighbour was heard of on an interface, at an address that is routed: IPv6 has others, of the link alone.

    `mac` "": the kernel has forgotten it, as when its table is full or the interface was down.
    """

    ifindex: int
    address: IPv4Address | IPv6Address
    mac: str


class RoutesChange:
    """Some IPv4 route has changed."""


Change = CarrierChange | StationChange | NeighbourChange | RoutesChange


class Kernel:
    """The links, bridges and neighbours of the network namespace that this process was in when it made this."""

    def __init__(self, *, bridging: bool) -> None:
        """`bridging`: hear of neighbours and routes, too."""
        groups = [rtnetlink.RTNLGRP_LINK]
        if bridging:
            groups += [rtnetlink.RTNLGRP_NEIGH, rtnetlink.RTNLGRP_IPV4_ROUTE]
        self._monitor = RouteSocket(groups=groups)
        self._route = RouteSocket()

    def fileno(self) -> int:
        """Readable when there are changes."""
        return self._monitor.fileno()

    def changes(self) -> Iterator[Change]:
        """The changes that were told; where some were lost, all links and neighbours as they stand."""
        while True:
            try:
                data = self._monitor.receive_now()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield from self.everything()
                continue
            for kind, _, _, body in rtnetlink.messages(data):
                if (change := _change(kind, body)) is not None:
                    yield change

    def everything(self) -> Iterator[Change]:
        """All links, stations and neighbours as they stand, and that routes may have changed."""
        for ifindex, up in self.links().items():
            yield CarrierChange(ifindex, up)
        for item in dump_neighbours(self._route, socket.AF_BRIDGE, socket.AF_INET, socket.AF_INET6):
            if (change := _neighbour_change(True, item)) is not None:
                yield change
        yield RoutesChange()

    def links(self) -> Mapping[int, bool]:
        """Tell of each link whether it is up and has carrier, by interface index."""
        found = {}
        for body in self._route.dump(rtnetlink.RTM_GETLINK, IFINFOMSG.pack(0, 0, 0, 0, 0)):
            _, _, ifindex, flags, _ = IFINFOMSG.unpack_from(body)
            found[ifindex] = rtnetlink.has_carrier(flags)
        return found

    def bgp_prefixes(self) -> frozenset[tuple[int, int]]:
        """Address and length of the prefixes that BGP has brought a route over an interface to; the blackhole of an own
        aggregate is none."""
        return frozenset(prefix for prefix, interfaces in bgp_routes(self._route).items() if interfaces)

    def count_evpn_entries(self) -> int:
        """Return the number of prefixes and flood lists that EVPN has brought a VRF; host routes depend on who is heard
        of."""
        prefixes = sum(length < _HOST_LENGTH for _, length in self.bgp_prefixes())
        fdb = dump_neighbours(self._route, socket.AF_BRIDGE)
        return prefixes + sum(item.address is not None and not item.mac.strip("0:") for item in fdb)

    def put_programs(self, ifindex: int, programs: Mapping[int, tuple[str, int]]) -> None:
        """Put eBPF programs (name and descriptor) on a port, one for each direction, behind those of its queues and in
        place of those of an earlier process. Raises `DriverError`."""
        self._route.submit([traffic.new_clsact(ifindex)])  # ports with QoS have it
        self._route.submit([traffic.delete_filters(ifindex, way, BEHIND_QUEUES) for way in programs])
        batch = [
            traffic.new_bpf_filter(ifindex, way, program, name, 0, BEHIND_QUEUES)
            for way, (name, program) in programs.items()
        ]
        self._route.expect(batch, [f"{', '.join(name for name, _ in programs.values())} on {ifindex}"] * len(batch))

    def set_link(self, ifindex: int, up: bool) -> None:
        """One that is gone is fine: of what goes, the kernel knows first. Raises `DriverError`."""
        self._route.expect([rtnetlink.set_link_state(ifindex, up)], [f"interface {ifindex}"], done={errno.ENODEV})

    def set_station(self, mac: str, port: int) -> bool:
        """Have the bridge of a port send what is for a MAC out of that port; False where the port is gone, or in no
        bridge any more. Raises `DriverError`."""
        return self._told(set_station(port, mac), f"station {mac}", {errno.ENODEV, errno.EOPNOTSUPP})

    def forget_station(self, mac: str, port: int) -> None:
        """One that is not there is fine."""
        self._route.submit([forget_station(port, mac)])

    def set_address(self, ifindex: int, address: IPv4Address, *, there: bool) -> None:
        """Have an interface have an address (/32), or not have it; it may be as it should be. Raises `DriverError`."""
        change = rtnetlink.new_address if there else rtnetlink.delete_address
        failures = self._route.submit([change(ifindex, address.packed, 32)])
        fine = errno.EEXIST if there else errno.EADDRNOTAVAIL
        if any(failure.errno != fine for failure in failures):
            raise rtnetlink.failure_error(failures, [f"address {address}"])

    def set_neighbour(self, bridge: int, address: IPv4Address | IPv6Address, mac: str, *, announced: bool) -> bool:
        """Have a neighbour on a bridge without asking for it: its answer might go to the other leaf. False where the
        bridge is gone.

        `announced`: zebra takes it for a local one, which EVPN announces; it ignores what is said to be learned
        elsewhere. Raises `DriverError`.
        """
        flags = 0 if announced else NTF_EXT_LEARNED
        request = set_neighbour(bridge, address, mac, state=NUD_NOARP, flags=flags)
        return self._told(request, f"neighbour {address}", {errno.ENODEV})

    def _told(self, request: bytes, what: str, gone: Collection[int]) -> bool:
        """Tell the kernel something; False where it answers an error that says that what it is about is gone."""
        failures = self._route.submit([request])
        if any(failure.errno not in gone for failure in failures):
            raise rtnetlink.failure_error(failures, [what])
        return not failures

    def close(self) -> None:
        self._monitor.close()
        self._route.close()


def _change(kind: int, body: memoryview) -> Change | None:
    match kind:
        case rtnetlink.RTM_NEWLINK:
            family, _, ifindex, flags, _ = IFINFOMSG.unpack_from(body)
            return None if family == socket.AF_BRIDGE else CarrierChange(ifindex, rtnetlink.has_carrier(flags))
        case rtnetlink.RTM_DELLINK:
            family, _, ifindex, _, _ = IFINFOMSG.unpack_from(body)
            return None if family == socket.AF_BRIDGE else CarrierChange(ifindex, False)
        case rtnetlink.RTM_NEWROUTE | rtnetlink.RTM_DELROUTE:
            return RoutesChange()
    if kind in (RTM_NEWNEIGH, RTM_DELNEIGH):
        return _neighbour_change(kind == RTM_NEWNEIGH, parse_neighbour(body))
    return None


def _neighbour_change(known: bool, item: Neighbour) -> Change | None:
    told = item.flags & NTF_EXT_LEARNED  # by us
    if item.family == socket.AF_BRIDGE:
        own = item.state & (NUD_PERMANENT | NUD_NOARP)  # the bridge's own addresses
        return None if told or own else StationChange(item.ifindex, item.mac, known)
    if item.address is None or (item.address.version == 6 and item.address.is_link_local):
        return None
    if not known or item.state & NUD_FAILED:
        return NeighbourChange(item.ifindex, item.address, "")
    if told or not item.mac or not item.state & _HEARD:
        return None
    return NeighbourChange(item.ifindex, item.address, item.mac)
