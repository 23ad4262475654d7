"""Routes whose lines have shares by the bandwidth behind them, while links fail and come back.

A switch that delivers to a destination announces it with the bandwidth of each line, and one that has several lines to
it announces their sum (RFC 10005; draft-ietf-bess-ebgp-dmz). Shares are percent of that, rounded down, as bgpd makes
them, and a line stands in a route so many times. Where a line is lost, the sum is another one, and so are the shares of
those who hear of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from testbed.protocols.simulation.network import FabricNetwork
from testbed.protocols.simulation.routing import FabricRouting, Planned

Bandwidths = Mapping[str, tuple[int, int]]
"""By line: what its target announces all that it does with to its source, and what the source takes in the place of
whatever it is told over it; 0 is nothing."""


class WeightedRouting(FabricRouting):
    """As `FabricRouting`, whose lines of equal cost may be named several times in `planned`, which counts as once."""

    def __init__(
        self,
        network: FabricNetwork,
        planned: Planned,
        ends: Mapping[str, tuple[str, str]],
        bandwidths: Bandwidths,
        *,
        reaction_ns: int,
        install_ns: int = 0,
        announced: Collection[str] = (),
    ) -> None:
        once = {
            switch: {destination: tuple(dict.fromkeys(lines)) for destination, lines in table.items()}
            for switch, table in planned.items()
        }
        super().__init__(network, once, ends, reaction_ns=reaction_ns, install_ns=install_ns, announced=announced)
        self._bandwidths = bandwidths
        self._told: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """By line and destination: the sum that its target has announced."""
        self._sums: dict[tuple[str, str], int] = {}
        """By switch and destination: what it has announced last."""
        self._settle()

    def _settle(self) -> None:
        """Announce all there is until nobody has anything new."""
        waiting = [(switch, destination) for switch, table in self._planned.items() for destination in table]
        while waiting:
            switch, destination = waiting.pop()
            found = self._sum(switch, destination)
            if self._sums.get((switch, destination), 0) == found:
                continue
            self._sums[switch, destination] = found
            for neighbour in self._neighbours[switch]:
                for line in self._between[neighbour, switch]:
                    self._told[line][destination] = found
                if destination in self._planned[neighbour]:
                    waiting.append((neighbour, destination))

    def routes(self, switch: str, destination: str) -> tuple[str, ...]:
        """Return the lines that a switch uses now, each as often as it has shares: the least first, as zebra sorts
        them."""
        lines = super().routes(switch, destination)
        shares = [self._share(line, destination) for line in lines]
        if len(set(shares)) < 2 or not all(shares):
            return lines
        total = sum(shares)
        weights = [max(1, 100 * share // total) for share in shares]
        order = sorted(range(len(lines)), key=lambda place: weights[place])
        return tuple(lines[place] for place in order for _ in range(weights[place]))

    def regain(self, line: str) -> None:
        """A line is in use again: its target has announced what it reaches, and how well."""
        target = self._ends[line][1] if line in self._ends else ""
        for destination in self._planned.get(target, ()):
            self._told[line][destination] = self._sums.get((target, destination), 0)
        super().regain(line)

    def _share(self, line: str, destination: str) -> int:
        own, taken = self._bandwidths.get(line, (0, 0))
        return taken or own or self._told[line].get(destination, 0)

    def _sum(self, switch: str, destination: str) -> int:
        shares = [self._share(line, destination) for line in super().routes(switch, destination)]
        return sum(shares) if all(shares) else 0

    def _apply(self, switch: str, destinations: Iterable[str], had: Mapping[str, str]) -> None:
        changed = list(destinations)
        super()._apply(switch, changed, had)
        sums = {
            destination: found
            for destination in changed
            if not self._delivers(switch, destination)
            and (found := self._sum(switch, destination)) != self._sums.get((switch, destination), 0)
        }
        if not sums:
            return
        self._sums |= {(switch, destination): found for destination, found in sums.items()}
        for neighbour in sorted(self._neighbours[switch]):
            for line in self._between[neighbour, switch]:
                self._announce(line, sums)

    def _announce(self, line: str, sums: Mapping[str, int]) -> None:
        """Send the source of a line the sums of its target."""
        source = self._ends[line][0]
        known = {destination: found for destination, found in sums.items() if destination in self._planned[source]}
        back = self._back.get(line)
        if back is None or not known or line in self._lost or back in self._lost:
            return
        delay_ns = self._reaction_ns + int(self._network.lines[back].delay_ns)
        self._network.at(self._network.now + delay_ns, lambda now: self._hear_sums(line, back, known))

    def _hear_sums(self, line: str, back: str, sums: Mapping[str, int]) -> None:
        if line in self._lost:
            return
        if not self._network.lines[back].up:
            self._tell_again(line, back)
            return
        source = self._ends[line][0]
        changed = sorted(sums)
        had = self._best_of(source, changed)
        self._told[line].update(sums)
        self._apply(source, changed, had)

    def _retell(self, line: str, back: str) -> None:
        super()._retell(line, back)
        if line not in self._untold and line not in self._lost and back not in self._lost:
            target = self._ends[line][1]
            sums = {destination: self._sums.get((target, destination), 0) for destination in self._by_line[line]}
            self._hear_sums(line, back, sums)
