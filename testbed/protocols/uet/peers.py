"""Counters of an endpoint by peer: the fate of the packets it sent there, and of those that came from there.

An event is counted when it happens, which is rare; what may befall any packet is an integer of its PDC, and is brought
here when somebody asks, or when the PDC ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc

MOST_PEERS = 4096
"""Events of further peers are in the endpoint's totals alone: strangers must not fill our memory."""

Peer = tuple[str, bool]
"""Its address, and whether it is about PDCs that we opened (and so about what we send there)."""


class PeerCounters:
    """The counters of an endpoint whose PDCs are in `pdcs`; `totals` are those of all peers, and of nobody."""

    def __init__(self, totals: Counter[str], pdcs: Mapping[int, Pdc]) -> None:
        self._totals = totals
        self._pdcs = pdcs
        self._kept: dict[Peer, Counter[str]] = {}

    def of(self, remote: str, *, initiator: bool) -> Counter[str]:
        """Return what the totals have of one peer: of PDCs that we opened, or of those that it opened.

        And `packets` and `packets-again`: those sent there in all, and of them those sent more than once.
        """
        self.settle()
        found = Counter(self._kept.get((remote, initiator), ()))
        for pdc in self._pdcs.values():
            if pdc.remote == remote and pdc.initiator == initiator:
                found.update(dict(_sent(pdc)))
        return found

    def sent(self) -> Counter[str]:
        """Return `packets` and `packets-again`, as `of` has them, to all peers together."""
        found: Counter[str] = Counter()
        for counters in self._kept.values():
            found["packets"] += counters["packets"]
            found["packets-again"] += counters["packets-again"]
        for pdc in self._pdcs.values():
            found.update(dict(_sent(pdc)))
        return found

    def settle(self) -> None:
        """Bring the totals up to date with what PDCs count packet by packet (`ce-marked`, `out-of-order`)."""
        for pdc in self._pdcs.values():
            self._settle(pdc)

    def count(self, what: str, peer: Peer, number: int = 1) -> None:
        """Something has happened with a peer, so many times."""
        self._totals[what] += number
        self._keep(what, peer, number)

    def end(self, pdc: Pdc) -> None:
        """A PDC is forgotten: keep what it did."""
        self._settle(pdc)
        for what, number in _sent(pdc):
            if number:
                self._keep(what, (pdc.remote, pdc.initiator), number)

    def _settle(self, pdc: Pdc) -> None:
        for what, number in pdc.receiver.take_counts():
            self.count(what, (pdc.remote, pdc.initiator), number)

    def _keep(self, what: str, peer: Peer, number: int) -> None:
        counters = self._kept.get(peer)
        if counters is None:
            if len(self._kept) >= MOST_PEERS:
                return
            counters = self._kept[peer] = Counter()
        counters[what] += number


def _sent(pdc: Pdc) -> Iterable[tuple[str, int]]:
    sends = pdc.sender.congestion.sends
    fresh = (pdc.sender.window.next_psn - pdc.start_psn) & 0xFFFF_FFFF
    return ("packets", sends), ("packets-again", max(0, sends - fresh))
