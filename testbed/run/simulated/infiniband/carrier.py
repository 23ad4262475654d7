"""The carrier of an InfiniBand run: it puts packets of HCAs into frames, lets the data path do what is due, and brings
frames to where they are for.

The data path does what is due whenever the simulator comes to it, and as much ahead as nothing else happens meanwhile.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import FrameNotice, SubnetDataPath, VirtualLane
from testbed.protocols.infiniband.local_routing import BTH_BYTES, LOCAL, LRH_BYTES, VCRC_BYTES
from testbed.protocols.infiniband.subnet import Subnet
from testbed.protocols.roce.rnic import Rnic
from testbed.run.placed.subnet import pkey_between
from testbed.run.simulated.infiniband.network import HcaHost, SubnetNetwork

_PKEY_AT = 2
"""The place of the P_Key in a BTH, 16 bits (InfiniBand volume 1, section 9.2)."""
_LRH = struct.Struct("!BBHHH")
MOST_AHEAD_NS: Final = 1_000_000
"""The data path goes no further at a time: where tables lead a frame round for ever, the run still has its end."""


@dataclass(frozen=True, slots=True)
class SubnetRoute:
    """The fields that all frames from one HCA to another have in common."""

    service: int
    """The second byte of the LRH: service level and next header."""
    dlid: int
    slid: int
    lane: int
    pkey: bytes


class SubnetCarrier:
    """The frames of one run. `names` has the HCA of each address that takes part."""

    def __init__(self, network: SubnetNetwork, path: SubnetDataPath, subnet: Subnet, names: Mapping[str, str]) -> None:
        self.path = path
        self.subnet = subnet
        self.lost: Counter[str] = Counter()
        """Frames that went nowhere, by the counter that has them."""
        self.deadlocked_ns: int | None = None
        """When no frame could move any more, though some are under way: each waits for credits of another one."""
        self.deadlock: tuple[VirtualLane, ...] = ()
        """The lanes that wait for each other in a circle then."""
        self._network = network
        self._names = names
        self._hosts: dict[str, HcaHost] = {}
        for address, host in network.nics.items():
            assert isinstance(host, HcaHost)
            host.carry = self.carry
            self._hosts[names[address]] = host
        self._routes: dict[tuple[str, str], SubnetRoute] = {}
        self._frames: dict[int, tuple[Outgoing, HcaHost]] = {}
        self._sending: dict[int, tuple[HcaHost, int]] = {}
        """The frames that wait at their HCA, and on which lane."""
        self._tokens = 0
        self._armed: int | None = None
        self._telling = False
        network.subnetwork = self
        self._set_lanes()

    @property
    def in_flight(self) -> int:
        return self.path.in_flight

    @property
    def lost_frames(self) -> int:
        """Return the frames that went nowhere."""
        return self.lost.total()

    @property
    def hops(self) -> int:
        return self.path.hops

    # --- routes ------------------------------------------------------------------------------------------

    def change_subnet(self, subnet: Subnet) -> None:
        """The subnet manager has written other tables: service levels of paths may be others, too."""
        self.subnet = subnet
        self._routes.clear()
        self._set_lanes()

    def _set_lanes(self) -> None:
        """Tell queue pairs which lane each address is behind, where there are several."""
        if self.subnet.vls == 1:
            return
        for name, host in self._hosts.items():
            rnic = host.endpoint
            assert isinstance(rnic, Rnic)
            rnic.lanes = {
                address: lane
                for address, other in self._names.items()
                if other != name and (lane := self.subnet.vl(name, other))  # 0 is that of all that are not named
            }

    def require_route(self, source: str, destination: str) -> None:
        """Raise `ScenarioError` where HCAs, by addresses, are in no partition together."""
        self._route(self._names[source], self._names[destination])

    def _route(self, source: str, destination: str) -> SubnetRoute:
        key = source, destination
        if key not in self._routes:
            level = self.subnet.sl(source, destination)
            self._routes[key] = SubnetRoute(
                level << 4 | LOCAL,
                self.subnet.nodes[destination].lid,
                self.subnet.nodes[source].lid,
                self.subnet.sl2vl[level],
                pkey_between(self.subnet, source, destination).to_bytes(2, "big"),
            )
        return self._routes[key]

    # --- frames ------------------------------------------------------------------------------------------

    def carry(self, host: HcaHost, outgoing: Outgoing, now: int) -> None:
        """Put a packet of an HCA into a frame, which waits there until its lane has its turn."""
        source = self._names[host.address]
        route = self._route(source, self._names[outgoing.remote])
        bth = outgoing.header[:BTH_BYTES]
        packet_bytes = len(outgoing.header) + len(outgoing.payload)
        header = _LRH.pack(0, route.service, route.dlid, (LRH_BYTES + packet_bytes) // 4, route.slid)
        header += bth[:_PKEY_AT] + route.pkey + bth[_PKEY_AT + 2 :]
        self._tokens += 1
        self._frames[self._tokens] = outgoing, host
        self._sending[self._tokens] = host, route.lane
        host.occupy(route.lane)
        self.path.offer(source, header, LRH_BYTES + packet_bytes + VCRC_BYTES, self._tokens, now)
        self.touch()

    def touch(self) -> None:
        """Have what is due now done, in an event of its own: something has changed."""
        if not self._telling:
            self._arm(self._network.now)

    def _arm(self, when: int) -> None:
        if self._armed is None or when < self._armed:
            self._armed = when
            self._network.at(when, self._act)

    def _act(self, now: int) -> None:
        if now != self._armed:
            return
        self._armed = None
        while True:
            self._tell(now)
            when = self.path.run(max(now, min(now + MOST_AHEAD_NS, self._network.events.next_time())))
            if when > now:
                break
        if when != binding.NEVER:
            self._arm(when)
        elif self.path.in_flight and not self.deadlock and (found := self.path.deadlock()):
            self.deadlock, self.deadlocked_ns = found, now

    def _tell(self, now: int) -> None:
        """Tell HCAs what has become of frames."""
        self._telling = True
        try:
            for notice in self.path.notices():
                self._tell_one(notice, now)
        finally:
            self._telling = False

    def _tell_one(self, notice: FrameNotice, now: int) -> None:
        if notice.kind == binding.SENT:
            self._leave(notice.token, now)
            return
        outgoing, sender = self._frames.pop(notice.token)
        if notice.kind == binding.LOST:
            self.lost[notice.cause] += 1
            self._leave(notice.token, now)
            return
        data = outgoing.header + bytes(outgoing.payload)
        incoming = Incoming(sender.address, outgoing.entropy, data, notice.fecn)
        self._hosts[notice.node].take(incoming, now)

    def _leave(self, token: int, now: int) -> None:
        found = self._sending.pop(token, None)
        if found is not None:
            host, lane = found
            host.leave(lane, now)
            host.resume(now)
