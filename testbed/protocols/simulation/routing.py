"""The routes of a network's switches while links fail and come back, by the rules of BGP in a Clos fabric (RFC 7938).

Every switch has the routes that were planned for it: by destination, lines of equal cost. It uses those of them whose
line it has not lost, and whose far end has not withdrawn the destination. Where none is left it withdraws the
destination from the neighbours that come to it by this switch, and it announces it to them when one is back. An update
is sent `reaction_ns` after what it is about, takes the delay of its line, and does not arrive by a line that is down:
TCP sends it again, unless the session ends before. `install_ns` after it has arrived the table is another one.

Switches of a tier share an AS number, but for leaves, so that BGP takes no path that would go up twice. So one way
alone is longer than a planned one: a leaf that has lost its line to a host with another leaf, too, comes to it by its
neighbours, as far as each has told it of a way by another leaf. A neighbour does so where its best way, which is taken
to be the first, is not by this very leaf.

Who loses a line, and when, is told from outside: carrier, BFD and timers are of links, not of routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from testbed.protocols.simulation.network import FabricNetwork

Planned = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By switch and destination, the lines of equal cost."""
AGAIN_NS: Final = 200_000_000
"""The time after which TCP sends again what has not arrived: the least that Linux waits."""


class FabricRouting:
    """The tables of all switches; each change of one goes to the network at once.

    `ends` has the source and the target of each line. Destinations that are in `announced` have a route of their own;
    others are a part of their switch's subnet, which is announced whether their own line is there or not.
    """

    def __init__(
        self,
        network: FabricNetwork,
        planned: Planned,
        ends: Mapping[str, tuple[str, str]],
        *,
        reaction_ns: int,
        install_ns: int = 0,
        announced: Collection[str] = (),
    ) -> None:
        self.updates = 0
        """Updates that have arrived."""
        self._network = network
        self._planned = planned
        self._ends = ends
        self._reaction_ns = reaction_ns
        self._install_ns = install_ns
        self._at_once = False
        self._announced = frozenset(announced)
        self._lost: set[str] = set()
        self._untold: set[str] = set()
        """Lines by whose link an update is to be sent again."""
        self._withdrawn: defaultdict[str, set[str]] = defaultdict(set)
        """By line, the destinations that its target has withdrawn, or has no way to that it could announce."""
        self._between: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._neighbours: defaultdict[str, set[str]] = defaultdict(set)
        """By switch, those that send to it."""
        for line, (source, target) in ends.items():
            self._between[source, target].append(line)
            if source in planned and target in planned:
                self._neighbours[target].add(source)
        self._back: dict[str, str] = {}
        """By line, the other direction of its link. Parallel links are named in the same order both ways."""
        for (source, target), parallel in list(self._between.items()):
            self._back |= dict(zip(parallel, self._between.get((target, source), []), strict=False))
        self._by_line: defaultdict[str, list[str]] = defaultdict(list)
        """By line, the destinations that its source reaches by it."""
        for table in planned.values():
            for destination, lines in table.items():
                for line in lines:
                    self._by_line[line].append(destination)
        self._detours: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """By leaf and destination that it delivers to, lines to neighbours that may know another way."""
        self._aside: defaultdict[str, set[str]] = defaultdict(set)
        """By line, the destinations that it is a detour to."""
        for switch, table in planned.items():
            self._find_detours(switch, {one for one in table if one in self._announced and self._delivers(switch, one)})
        for name in planned:
            network.fabric_switches[name].reroutes = True

    def _find_detours(self, leaf: str, delivered: Collection[str]) -> None:
        """Note by which neighbours a leaf might come to what it delivers to, and what these have told it of."""
        for neighbour in sorted(self._neighbours[leaf]) if delivered else ():
            for line in self._between[leaf, neighbour]:
                self._aside[line] = {one for one in delivered if one in self._planned[neighbour]}
                for destination in sorted(self._aside[line]):
                    self._detours[leaf, destination].append(line)
                    self._by_line[line].append(destination)
                    if not self._announces(line, destination, self._best(neighbour, destination)):
                        self._withdrawn[line].add(destination)

    def routes(self, switch: str, destination: str) -> tuple[str, ...]:
        """Return the lines that a switch uses now, in their planned order; none where it has no route."""
        planned = self._usable(self._planned[switch].get(destination, ()), destination)
        return planned or self._usable(self._detours.get((switch, destination), ()), destination)

    def _usable(self, lines: Iterable[str], destination: str) -> tuple[str, ...]:
        return tuple(line for line in lines if line not in self._lost and destination not in self._withdrawn[line])

    def _best(self, switch: str, destination: str) -> str:
        """Return the node by which a switch comes to a destination in the way that it announces; "": there is none."""
        planned = self._usable(self._planned[switch].get(destination, ()), destination)
        return self._ends[planned[0]][1] if planned else ""

    def _announces(self, line: str, destination: str, best: str) -> bool:
        """Tell whether the target of a line announces a destination to the source, if this is its best way to it."""
        source, target = self._ends[line]
        if destination in self._aside.get(line, ()):
            return best not in ("", source)
        return bool(best) or self._is_local(target, destination)

    def lose(self, line: str, *, at_once: bool = True) -> None:
        """The switch at its begin takes a line for lost, with whatever its neighbour announced by it: `at_once`, as a
        kernel does whose port has no carrier, or after `install_ns`, where BGP alone knows."""
        if line in self._ends and line not in self._lost:
            source = self._ends[line][0]
            had = self._best_of(source, self._by_line[line])
            self._lost.add(line)
            self._at_once = at_once
            self._apply(source, self._by_line[line], had)
            self._at_once = False

    def regain(self, line: str) -> None:
        """A line is in use again: its target has announced what it reaches."""
        if line not in self._lost:
            return
        source, target = self._ends[line]
        had = self._best_of(source, self._by_line[line])
        self._lost.discard(line)
        if target in self._planned:
            self._withdrawn[line] = set(self._by_line[line]) - self._offered(line)
        self._at_once = True
        self._apply(source, self._by_line[line], had)
        self._at_once = False

    # --- what follows ------------------------------------------------------------------------------------

    def _best_of(self, switch: str, destinations: Iterable[str]) -> dict[str, str]:
        return {one: self._best(switch, one) for one in destinations}

    def _offered(self, line: str) -> set[str]:
        """Return the destinations that the target of a line announces now to those who come to them by it."""
        target = self._ends[line][1]
        return {one for one in self._by_line[line] if self._announces(line, one, self._best(target, one))}

    def _apply(self, switch: str, destinations: Iterable[str], had: Mapping[str, str]) -> None:
        """Install the routes of a switch, whose best ways were those that it `had`, and tell its neighbours what it
        reaches anew or no more."""
        changed = list(destinations)
        if self._at_once or not self._install_ns:
            self._install(switch, changed)
        else:
            self._network.at(self._network.now + self._install_ns, lambda now: self._install(switch, changed))
        best = self._best_of(switch, changed)
        others = [one for one in changed if best[one] != had[one]]
        if not others:
            return
        for neighbour in sorted(self._neighbours[switch]):
            for line in self._between[neighbour, switch]:
                before = {one for one in others if self._announces(line, one, had[one])}
                after = {one for one in others if self._announces(line, one, best[one])}
                self._tell(line, after - before, before - after)

    def _install(self, switch: str, destinations: Iterable[str]) -> None:
        for destination in destinations:
            self._network.route(switch, destination, self.routes(switch, destination))

    def _is_local(self, switch: str, destination: str) -> bool:
        """Tell whether a switch delivers what is for a destination, whose subnet it goes on to announce."""
        return destination not in self._announced and self._delivers(switch, destination)

    def _delivers(self, switch: str, destination: str) -> bool:
        planned = self._planned[switch].get(destination, ())
        return any(self._ends[line][1] not in self._planned for line in planned)

    def _tell(self, line: str, come: set[str], gone: set[str]) -> None:
        """Send an update to the source of a line."""
        known = set(self._by_line[line])
        come, gone = come & known, gone & known
        back = self._back.get(line)
        if back is None or not (come or gone) or line in self._lost or back in self._lost:
            return
        delay_ns = self._reaction_ns + int(self._network.lines[back].delay_ns)
        self._network.at(self._network.now + delay_ns, lambda now: self._hear(line, back, come, gone))

    def _hear(self, line: str, back: str, come: set[str], gone: set[str]) -> None:
        if line in self._lost:
            return  # the session is down; when it is back all is announced
        if not self._network.lines[back].up:
            self._tell_again(line, back)
            return
        self.updates += 1
        source = self._ends[line][0]
        changed = sorted(come | gone)
        had = self._best_of(source, changed)
        self._withdrawn[line] = (self._withdrawn[line] | gone) - come
        self._apply(source, changed, had)

    def _tell_again(self, line: str, back: str) -> None:
        """Have the source of a line told later what its target reaches then."""
        if line not in self._untold:
            self._untold.add(line)
            self._network.at(self._network.now + AGAIN_NS, lambda now: self._retell(line, back))

    def _retell(self, line: str, back: str) -> None:
        self._untold.discard(line)
        if line in self._lost or back in self._lost:
            return
        come = self._offered(line)
        self._hear(line, back, come, set(self._by_line[line]) - come)
