"""A scale-up domain in a worker's process: whose transfers share its links, and whom their ends are told.

Mostly it is one host by itself. Where a domain spans hosts, one process works for all of them, and their programs name
the domain: the first that joins makes it, and data goes from one host's arrays to another's in this process. Either it
is copied when the links would have carried it (`copies`), or it crosses them as frames (`inside_packets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.copies import InsideCopies
from testbed.endpoints.worker.inside_packets import InsidePackets, PacketEndpoints
from testbed.endpoints.worker.program import ScaleUpLinks, ScaleUpPlace, Step


class Member(Protocol):
    """A program that executes ranks of a domain."""

    def outgoing(self, step: Step) -> memoryview | None:
        """Return the bytes of a transfer of an own rank; None where it is traffic alone."""

    def on_inside_arrived(self, step: Step, now: int, data: memoryview | None) -> None:
        """A transfer to an own rank has ended, which another one of this process may have begun."""

    def landing(self, step: Step) -> memoryview | None:
        """Return where the bytes of a transfer to an own rank go as they come; None where they are to be added up, or
        are traffic alone."""

    def on_inside_sent(self, step: Step, now: int) -> None:
        """A transfer from an own rank to another member has ended, or one of an own rank has failed and is counted."""

    def on_failed(self, reason: str) -> None:
        """The domain cannot go on."""


class Domain:
    """The links of one domain, and who executes which of its ranks."""

    def __init__(self, links: ScaleUpLinks, endpoints: PacketEndpoints | None = None) -> None:
        """`endpoints` are those of the process, where transfers are to be frames."""
        self.links = links
        self._members: dict[int, Member] = {}
        self.packets: InsidePackets | None = None
        """None: transfers are copies."""
        carried: InsideCopies | InsidePackets
        if links.packets is not None and endpoints is not None:
            carried = self.packets = InsidePackets(links.packets, endpoints, self)
        else:
            carried = InsideCopies(
                links.rate_bps, self._deliver, one_way_ns=links.one_way_ns, in_switch_bps=links.in_switch_bps
            )
        self.send = carried.send
        self.step = carried.step
        self.turn = carried.turn
        self.next_due = carried.next_due

    @property
    def empty(self) -> bool:
        return not self._members

    def join(self, ranks: Iterable[int], member: Member, places: Iterable[ScaleUpPlace] = ()) -> None:
        """Let a member execute some ranks, and open the ends of these GPUs when it connects.

        Raises `TrafficError` where another one executes one of the ranks.
        """
        mine = list(ranks)
        if not self._members.keys().isdisjoint(mine):
            raise TrafficError(f"two workers execute the same rank of the scale-up domain {self.links.domain}")
        self._members |= dict.fromkeys(mine, member)
        if self.packets is not None:
            self.packets.expect(places)

    def leave(self, member: Member) -> None:
        """Tell a member nothing any more. What is on its way to it or from it is lost."""
        if self.packets is not None:
            self.packets.close([rank for rank, one in self._members.items() if one is member])
        self._members = {rank: one for rank, one in self._members.items() if one is not member}

    def is_ready(self, now: int) -> bool:
        """Tell whether transfers can begin. Raises `TrafficError`."""
        return self.packets is None or self.packets.is_ready(now)

    def _deliver(self, step: Step, now: int) -> None:
        assert step.destination is not None
        source, destination = self._members.get(step.source), self._members.get(step.destination)
        if source is None or destination is None:
            return
        destination.on_inside_arrived(step, now, source.outgoing(step))
        if source is not destination:
            source.on_inside_sent(step, now)

    # --- what packets tell, and ask: where memory is None, a transfer is traffic alone ---------------------

    def outgoing(self, step: Step) -> memoryview | None:
        source = self._members.get(step.source)
        return None if source is None else source.outgoing(step)

    def landing(self, step: Step) -> memoryview | None:
        destination = None if step.destination is None else self._members.get(step.destination)
        return None if destination is None else destination.landing(step)

    def on_arrived(self, step: Step, now: int, data: memoryview | None) -> None:
        """All of a transfer has come to its destination; `data` is what is to be added up."""
        if (destination := self._executes(step.destination)) is not None:
            destination.on_inside_arrived(step, now, data)

    def on_sent(self, step: Step, now: int) -> None:
        """The source of a transfer that has arrived knows it, too."""
        source = self._executes(step.source)
        if source is not None and source is not self._executes(step.destination):
            source.on_inside_sent(step, now)

    def on_lost(self, step: Step, now: int) -> None:
        """A transfer has failed, and is counted."""
        for member in dict.fromkeys((self._executes(step.destination), self._executes(step.source))):
            if member is not None:
                member.on_inside_sent(step, now)

    def on_failed(self, reason: str) -> None:
        for member in list(dict.fromkeys(self._members.values())):
            member.on_failed(reason)

    def _executes(self, rank: int | None) -> Member | None:
        return None if rank is None else self._members.get(rank)


class Domains:
    """The domains of one process, by name, and the endpoints of those whose transfers are frames."""

    def __init__(self, endpoints: PacketEndpoints | None = None) -> None:
        """`endpoints` are those of the process; None: on sockets of their own."""
        self.endpoints = PacketEndpoints() if endpoints is None else endpoints
        self._domains: dict[str, Domain] = {}

    def join(self, links: ScaleUpLinks, ranks: Iterable[int], member: Member) -> Domain:
        """Return the domain of a program, which `member` executes for its own `ranks`.

        Raises `TrafficError` where that does not fit what other members have said of the domain.
        """
        found = self._domains.get(links.domain) if links.domain else None
        if found is None or found.empty:
            found = Domain(links, self.endpoints)
            if links.domain:
                self._domains[links.domain] = found
        if found.links.timing != links.timing:
            raise TrafficError(f"the workers of the scale-up domain {links.domain} do not agree on its links")
        found.join(ranks, member, () if links.packets is None else links.packets.places)
        return found
