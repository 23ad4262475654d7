"""Which BGP routes every switch must have once routing has converged, and over which interfaces.

Computed as BGP would decide it, per origin and in steps of path length. All routes tie on everything
before the length of the AS path (eBGP) or of the cluster list (iBGP), each hop adds one, and
a shorter path is never displaced by a longer one: so a breadth-first wave from the origin settles
every switch in the state BGP converges to. What the wave must respect:

* eBGP (RFC 4271 section 9.1.2): a switch refuses a path that has its own AS in it. Spines of one pod share
  an AS, so they never learn each other's loopbacks; neither do super-spines.
* iBGP (RFC 4456): only reflectors pass routes on; those from clients to everybody, those from others to
  clients; a reflector refuses a path that has its own cluster in it.

A switch announces one path even where it uses many. Where equally long paths differ in the ASes they
cross, the choice decides who refuses the announcement; `bgp bestpath compare-routerid` makes it the
neighbour with the lowest router id, here and in FRR, and such switches are named in the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from testbed.lab.core.plan.lab_plan import ExpectedRoute


@dataclass(frozen=True, slots=True)
class Speaker:
    """A BGP speaker. `group` is its AS (eBGP) or cluster (iBGP; None for one that reflects nothing)."""

    name: str
    router_id: int
    group: int | None
    announces: tuple[IPv4Network, ...]
    """The prefixes that it alone announces."""
    own_aggregates: tuple[IPv4Network, ...] = ()
    shares: tuple[IPv4Network, ...] = ()
    """The prefixes that it announces as others do: receivers use all that are equally near."""
    accepts: tuple[IPv4Network, ...] | None = None
    """A host: the prefixes that it takes. It hands none on. None: a switch."""


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """One direction of a session: what `sender` announces arrives on `interface` of `receiver`.

    `to_client`: the receiver is a reflection client of the sender; `from_client`: the sender is one of the receiver.
    `sender_mac` orders the link-local addresses of senders, the last of BGP's tie-breaks.
    """

    sender: str
    receiver: str
    interface: str
    sender_mac: str
    to_client: bool = False
    from_client: bool = False
    told_bandwidth: int = 0
    """The sender announces all that it does with this link bandwidth; 0: its own prefixes with none."""
    taken_bandwidth: int = 0
    """The receiver puts this in the place of what it is told; 0: it takes what it is told."""


@dataclass(slots=True)
class _Hop:
    """All sessions from one speaker to another."""

    receiver: int
    interfaces: list[str]
    mac: str
    to_client: bool
    from_client: bool


@dataclass(slots=True)
class _Offer:
    """The offers to a speaker in one step of the wave: from whom, and the path of the best one."""

    senders: list[int]
    path: int
    mac: str
    from_client: bool


class _Graph:
    """Speakers numbered by router id, so that the lowest number wins BGP's tie."""

    def __init__(self, speakers: Sequence[Speaker], sessions: Sequence[PlannedSession]) -> None:
        self.speakers = sorted(speakers, key=lambda speaker: speaker.router_id)
        number = {speaker.name: i for i, speaker in enumerate(self.speakers)}
        groups = sorted({speaker.group for speaker in speakers if speaker.group is not None})
        bit = {group: 1 << i for i, group in enumerate(groups)}
        self.bits = [0 if speaker.group is None else bit[speaker.group] for speaker in self.speakers]
        self.hops: list[dict[int, _Hop]] = [{} for _ in self.speakers]
        for session in sessions:
            sender, receiver = number[session.sender], number[session.receiver]
            hop = self.hops[sender].get(receiver)
            if hop is None:
                self.hops[sender][receiver] = _Hop(
                    receiver, [session.interface], session.sender_mac, session.to_client, session.from_client
                )
            else:
                hop.interfaces.append(session.interface)
                hop.mac = min(hop.mac, session.sender_mac)
        self._interfaces: dict[tuple[int, tuple[int, ...]], tuple[str, ...]] = {}
        self.bandwidths = {
            (number[session.receiver], session.interface): (session.told_bandwidth, session.taken_bandwidth)
            for session in sessions
            if session.told_bandwidth or session.taken_bandwidth
        }
        """Told and taken, by the receiver and its interface."""

    def interfaces(self, receiver: int, senders: list[int]) -> tuple[str, ...]:
        """The interfaces of `receiver` towards `senders`, sorted."""
        key = (receiver, tuple(senders))
        found = self._interfaces.get(key)
        if found is None:
            found = tuple(sorted(name for sender in senders for name in self.hops[sender][receiver].interfaces))
            self._interfaces[key] = found
        return found


def expect_routes(
    speakers: Sequence[Speaker], sessions: Sequence[PlannedSession], *, ecmp: int, reflection: bool
) -> tuple[dict[str, tuple[ExpectedRoute, ...]], frozenset[str]]:
    """The BGP routes of every speaker, sorted by prefix, and the speakers whose choice must be pinned.

    `ecmp` is `maximum-paths`; `reflection` chooses the rules of iBGP with route reflectors.
    """
    graph = _Graph(speakers, sessions)
    wave = _ibgp_wave if reflection else _ebgp_wave
    tables: list[list[ExpectedRoute]] = [
        [ExpectedRoute(prefix=prefix, interfaces=()) for prefix in speaker.own_aggregates] for speaker in graph.speakers
    ]
    ambiguous: set[int] = set()
    shared: dict[IPv4Network, list[int]] = {}
    for number, speaker in enumerate(graph.speakers):
        for prefix in speaker.shares:
            shared.setdefault(prefix, []).append(number)
    announced = [([number], speaker.announces) for number, speaker in enumerate(graph.speakers)]
    for origins, prefixes in (*announced, *((numbers, (prefix,)) for prefix, numbers in shared.items())):
        learned = wave(graph, origins, ambiguous)
        weights_of = _weights(graph, origins, learned, ecmp) if graph.bandwidths else {}
        for receiver, senders in learned.items():
            interfaces = graph.interfaces(receiver, senders)
            width = ecmp if len(interfaces) > ecmp else 0
            weights = weights_of.get(receiver, ())
            table = tables[receiver]
            accepts = graph.speakers[receiver].accepts
            for prefix in prefixes:
                if accepts is None or prefix in accepts:
                    table.append(ExpectedRoute(prefix=prefix, interfaces=interfaces, width=width, weights=weights))
    order = _prefix_order(graph.speakers)
    expected = {
        speaker.name: tuple(sorted(table, key=lambda route: order[route.prefix]))
        for speaker, table in zip(graph.speakers, tables, strict=True)
    }
    return {speaker.name: expected[speaker.name] for speaker in speakers}, frozenset(
        graph.speakers[i].name for i in ambiguous
    )


def _weights(
    graph: _Graph, origins: Sequence[int], learned: Mapping[int, list[int]], ecmp: int
) -> dict[int, tuple[int, ...]]:
    """The weights of the interfaces of each speaker that divides unevenly: percent of the bandwidth behind all of them,
    as bgpd hands them to zebra (bgp_zebra.c; FRR user guide, "Weighted ECMP using BGP link bandwidth").

    A speaker with several paths that all have a link bandwidth tells their sum, one with a single path hands on what it
    was told. Where some path has none, nothing is weighted.
    """
    told = dict.fromkeys(origins, 0)
    found: dict[int, tuple[int, ...]] = {}
    for receiver, senders in learned.items():  # in the order in which they have learned
        values: dict[str, int] = {}
        for sender in senders:
            for interface in graph.hops[sender][receiver].interfaces:
                own, taken = graph.bandwidths.get((receiver, interface), (0, 0))
                values[interface] = taken or own or told[sender]
        interfaces = graph.interfaces(receiver, senders)
        shares = [values[interface] for interface in interfaces]
        if not all(shares):
            told[receiver] = 0
            continue
        told[receiver] = sum(shares[:ecmp])
        if len(set(shares)) > 1:
            found[receiver] = tuple(max(1, 100 * share // told[receiver]) for share in shares)
    return found


def _prefix_order(speakers: Sequence[Speaker]) -> Mapping[IPv4Network, int]:
    prefixes = {prefix for one in speakers for prefix in (*one.announces, *one.own_aggregates, *one.shares)}
    ordered = sorted(prefixes, key=lambda prefix: (int(prefix.network_address), prefix.prefixlen))
    return {prefix: i for i, prefix in enumerate(ordered)}


def _ebgp_wave(graph: _Graph, origins: Sequence[int], ambiguous: set[int]) -> dict[int, list[int]]:
    """For every speaker that learns the origins' routes: the neighbours it uses, all equally far."""
    bits, hops = graph.bits, graph.hops
    learned: dict[int, list[int]] = {}
    paths = {origin: bits[origin] for origin in origins}
    frontier = list(origins)
    while frontier:
        offers: dict[int, _Offer] = {}
        for sender in frontier:
            path = paths[sender]
            for receiver in hops[sender]:
                if receiver in paths or path & bits[receiver]:
                    continue
                offer = offers.get(receiver)
                if offer is None:
                    offers[receiver] = _Offer([sender], path, "", False)
                else:
                    offer.senders.append(sender)
                    if offer.path != path and graph.speakers[receiver].accepts is None:
                        ambiguous.add(receiver)
        frontier = []
        for receiver in sorted(offers):
            offer = offers[receiver]
            learned[receiver] = offer.senders
            paths[receiver] = offer.path | bits[receiver]
            if graph.speakers[receiver].accepts is None:
                frontier.append(receiver)
    return learned


def _ibgp_wave(graph: _Graph, origins: Sequence[int], ambiguous: set[int]) -> dict[int, list[int]]:
    """As `_ebgp_wave`, with cluster lists. Ties fall to the lowest link-local address, which nothing disturbs."""
    learned: dict[int, list[int]] = {}
    paths = dict.fromkeys(origins, 0)
    to_all = set(origins)
    frontier = list(origins)
    while frontier:
        offers: dict[int, _Offer] = {}
        for sender in frontier:
            path = paths[sender]
            for receiver, hop in graph.hops[sender].items():
                if receiver in paths or path & graph.bits[receiver] or not (sender in to_all or hop.to_client):
                    continue
                offer = offers.get(receiver)
                if offer is None:
                    offers[receiver] = _Offer([sender], path, hop.mac, hop.from_client)
                    continue
                offer.senders.append(sender)
                if hop.mac < offer.mac:
                    offer.path, offer.mac, offer.from_client = path, hop.mac, hop.from_client
        frontier = []
        for receiver in sorted(offers):
            offer = offers[receiver]
            learned[receiver] = offer.senders
            paths[receiver] = offer.path | graph.bits[receiver]
            if graph.bits[receiver]:
                frontier.append(receiver)
                if offer.from_client:
                    to_all.add(receiver)
    return learned
