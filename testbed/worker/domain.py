"""A scale-up domain in a worker's process: whose transfers share its links, and whom their ends are told.

Mostly it is one host by itself. Where a domain spans hosts, one process works for all of them, and their programs name
the domain: the first that joins makes it, and data is copied from one host's arrays to another's in this process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from testbed.worker.copies import InsideCopies
from testbed.worker.errors import TrafficError
from testbed.worker.program import ScaleUpLinks, Step


class Member(Protocol):
    """What executes ranks of a domain."""

    def outgoing(self, step: Step) -> memoryview | None:
        """Return the bytes of a transfer of an own rank; None where it is traffic alone."""

    def on_inside_arrived(self, step: Step, now: int, data: memoryview | None) -> None:
        """A transfer to an own rank has ended, which another one of this process may have begun."""

    def on_inside_sent(self, step: Step, now: int) -> None:
        """A transfer from an own rank to another member's has ended."""


class Domain:
    """The links of one domain, and who executes which of its ranks."""

    def __init__(self, links: ScaleUpLinks) -> None:
        self.links = links
        self._members: dict[int, Member] = {}
        self._copies = InsideCopies(
            links.rate_bps, self._deliver, one_way_ns=links.one_way_ns, in_switch_bps=links.in_switch_bps
        )
        self.send = self._copies.send
        self.step = self._copies.step
        self.turn = self._copies.turn
        self.next_due = self._copies.next_due

    @property
    def empty(self) -> bool:
        return not self._members

    def join(self, ranks: Iterable[int], member: Member) -> None:
        """Let a member execute some ranks. Raises `TrafficError` where another one does."""
        mine = list(ranks)
        if not self._members.keys().isdisjoint(mine):
            raise TrafficError(f"two workers execute the same rank of the scale-up domain {self.links.domain}")
        self._members |= dict.fromkeys(mine, member)

    def leave(self, member: Member) -> None:
        """Tell a member nothing any more. What is on its way to it or from it is lost."""
        self._members = {rank: one for rank, one in self._members.items() if one is not member}

    def _deliver(self, step: Step, now: int) -> None:
        assert step.destination is not None
        source, destination = self._members.get(step.source), self._members.get(step.destination)
        if source is None or destination is None:
            return
        destination.on_inside_arrived(step, now, source.outgoing(step))
        if source is not destination:
            source.on_inside_sent(step, now)


class Domains:
    """The domains of one process, by name."""

    def __init__(self) -> None:
        self._domains: dict[str, Domain] = {}

    def join(self, links: ScaleUpLinks, ranks: Iterable[int], member: Member) -> Domain:
        """Return the domain of a program, which `member` executes for its own `ranks`.

        Raises `TrafficError` where that does not fit what other members have said of the domain.
        """
        found = self._domains.get(links.domain) if links.domain else None
        if found is None or found.empty:
            found = Domain(links)
            if links.domain:
                self._domains[links.domain] = found
        if found.links.timing != links.timing:
            raise TrafficError(f"the workers of the scale-up domain {links.domain} do not agree on its links")
        found.join(ranks, member)
        return found
