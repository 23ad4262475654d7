"""HCAs, and the network that they are in: its frames are carried by a subnet, and not by lines and ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.simulation import Endpoint, FabricNetwork
from testbed.protocols.simulation.events import Events
from testbed.run.simulated.transports.roce import RnicHost

if TYPE_CHECKING:
    from mypy_extensions import i64

LANE_FRAMES: Final = 2
"""The frames of a lane that wait at an HCA at most: one that goes next, and one behind it. What is behind these is
still its queue pair's, so that a lane that is held up holds up no other."""


def lead_nowhere(host: HcaHost, outgoing: Outgoing, now: int) -> None:
    """Refuse a packet of an HCA that no subnet has been given yet."""
    raise RuntimeError(f"the HCA {host.address} is in no subnet")


class HcaHost(RnicHost):
    """A NIC of a subnet. Its packets go to `carry`, lane by lane, as long as these have room."""

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        events: Events,
        numbers: dict[str, int],
        addresses: list[str],
        overhead_bytes: int,
    ) -> None:
        super().__init__(number, endpoint, events, numbers, addresses, overhead_bytes)
        self.carry: Callable[[HcaHost, Outgoing, int], None] = lead_nowhere
        """Takes a packet, and calls `occupy`."""
        self._queued: dict[int, int] = {}
        """The frames that wait here, by lane."""

    def _pull(self, now: i64) -> None:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        while True:
            batch = rnic.transmit(now, 1)
            if not batch:
                return
            outgoing = batch[0]
            self.sent += 1
            if outgoing.remote not in self._numbers:
                self.unroutable += 1
                continue
            self.carry(self, outgoing, now)

    def occupy(self, lane: int) -> None:
        """A frame waits for its turn on a lane."""
        found = self._queued.get(lane, 0) + 1
        self._queued[lane] = found
        if found >= LANE_FRAMES:
            rnic = self.endpoint
            assert isinstance(rnic, Rnic)
            rnic.full_lanes |= 1 << lane

    def leave(self, lane: int, now: int) -> None:
        """It waits no more. Flows of a lane that had no credits go on at their rates: they do not make up for it."""
        found = self._queued.get(lane, 0) - 1
        self._queued[lane] = found
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        if found < LANE_FRAMES and rnic.full_lanes >> lane & 1:
            rnic.full_lanes &= ~(1 << lane)
            self._on_room(now)

    def resume(self, now: int) -> None:
        """Send what there is now room for."""
        if self.alive:
            self._continue(now)

    def take(self, incoming: Incoming, now: int) -> None:
        """A packet has come in whole."""
        if not self.alive:
            self.refused += 1
            return
        self.delivered += 1
        self.delivered_bytes += len(incoming.data)
        self._receive(incoming, now)
        self._continue(now)


class Subnetwork(Protocol):
    """The carrier of a network's frames, as far as the network asks it."""

    @property
    def in_flight(self) -> int:
        """Return the frames that are under way."""

    @property
    def lost_frames(self) -> int:
        """Return the frames that went nowhere, of which a counter tells."""

    @property
    def hops(self) -> int:
        """Return the frames that were put on a link, anywhere."""


class SubnetNetwork(FabricNetwork):
    """HCAs by the IPv4 address that programs know them by, under one clock."""

    def __init__(self, endpoints: Sequence[Endpoint], *, seed: int, hosts: Mapping[str, Any]) -> None:
        super().__init__(endpoints, seed=seed, hosts=hosts)
        self.subnetwork: Subnetwork | None = None
        """Set as soon as it is there, which is before anything is sent."""

    def in_flight(self) -> int:
        return 0 if self.subnetwork is None else self.subnetwork.in_flight

    def accounted(self) -> int:
        """Datagrams of which it is known what became of them, or that are on their way."""
        of_nics = sum(nic.delivered + nic.refused + nic.unroutable + nic.tapped for nic in self.nics.values())
        lost = 0 if self.subnetwork is None else self.subnetwork.lost_frames
        return of_nics + lost + self.in_flight()

    @property
    def hops(self) -> int:
        """Frames that were put on a link."""
        return 0 if self.subnetwork is None else self.subnetwork.hops
