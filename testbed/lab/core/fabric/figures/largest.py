"""Radix asked: how many GPUs fit on switches of so many ports, as a file is wired, and in the largest fabric of them.

**As it is wired** every switch keeps its links to the tier above, and the ports that are free take more of what is
below: hosts on a rail switch, segments on a spine, pods on a super-spine.

**The largest** is the non-blocking Clos of two and of three tiers with as many rails, planes and ports of NICs: half of
the ports of each switch lead up but at the top, all links of a tier have one rate. A leaf has one link to each spine of
its plane, so a plane of two tiers has as many leaves as a spine has ports (2,048 ports of 64-port switches), and one of
three tiers as many pods as a super-spine has (65,536): FT2 and FT3 in table 3 of DeepSeek-V3 (Zhao et al., ISCA 2025),
whose eight planes of two tiers have 16,384 GPUs. Rails that share a switch, and segments that do not fill a pod, take
their part of it. Where the links up of a switch have another rate than those down, both count by their rates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from testbed.lab.core.model import BACKEND, Lab, LinkKind, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestFabric:
    """A fabric of switches of given radix. `tiers` is 0 for what fits as the file is wired, else 2 or 3.

    `hosts` are those of a segment, `spines` those of a pod and plane, `super_spines` those of a plane.
    """

    tiers: int
    gpus: int
    pods: int
    segments: int
    hosts: int
    spines: int
    super_spines: int
    switches: int

    @property
    def words(self) -> str:
        """Its parts for people."""
        pods = f"{self.pods:,} pods of " if self.pods > 1 else ""
        return f"{pods}{self.segments:,} segments of {self.hosts:,} hosts, {self.switches:,} switches"


def find_largest(lab: Lab) -> tuple[LargestFabric, ...]:
    """Return what fits on switches of the radix that a generated back end names: as wired, with two and three tiers.

    () where a tier's radix is not known, or the back end is not generated.
    """
    wiring = _Wiring.of(lab)
    if wiring is None:
        return ()
    found = [wiring.as_wired(), *((wiring.largest(2), wiring.largest(3)) if wiring.spines else ())]
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    """The numbers of a generated back end that do not change as it grows.

    `leaves` are rail switches of a segment in a plane, `slots` ports of a host on one of them, `ups` links of a switch
    of a role to the tier above. `lifted` is how many ports of NICs one link up carries at full rate, `lifted_on` how
    many of those links one to a super-spine does.
    """

    planes: int
    leaves: int
    slots: int
    gpus_per_host: int
    radix: dict[Role, int]
    ups: dict[Role, int]
    below: dict[Role, int]
    """The most links of one role's switch to what it takes once more: a host, a segment, a pod."""
    pods: int
    segments: int
    hosts: int
    spines: int
    super_spines: int
    lifted: Fraction
    lifted_on: Fraction

    @classmethod
    def of(cls, lab: Lab) -> _Wiring | None:
        places = {node.name: node.place for node in lab.nodes if node.network == BACKEND and node.place is not None}
        roles = {node.name: node.role for node in lab.switches if node.name in places and node.role is not None}
        hosts = [node.name for node in lab.hosts if node.name in places]
        known = {role: radix for role in Role if (radix := lab.radix_of(role)) is not None}
        present = set(roles.values())
        if not hosts or Role.RAIL not in present or Role.LEAF in present or present - set(known):
            return None
        below: dict[Role, Counter[tuple[str, object]]] = {role: Counter() for role in present}
        ups: Counter[str] = Counter()
        rates: dict[Role, int] = {}
        for link in lab.links:
            if link.b.node not in roles or link.kind not in (LinkKind.ACCESS, LinkKind.FABRIC):
                continue
            ups[link.a.node] += 1
            rates.setdefault(roles[link.b.node], link.rate.bps)
            place = places.get(link.a.node)
            if place is not None:
                unit = {Role.RAIL: link.a.node, Role.SPINE: place.segment, Role.SUPER_SPINE: place.pod}
                below[roles[link.b.node]][link.b.node, unit.get(roles[link.b.node])] += 1
        leaves = Counter((places[name].pod, places[name].segment) for name, role in roles.items() if role is Role.RAIL)
        segments = Counter(pod for pod, _ in leaves)
        of_segment = Counter((places[name].pod, places[name].segment) for name in hosts)
        tops = Counter(roles.values())
        rails = {link.rail for link in lab.links if link.a.node == hosts[0] and link.rail}
        slots = max(below[Role.RAIL].values(), default=0)
        if not slots:
            return None
        up_bps = rates.get(Role.SPINE, rates[Role.RAIL])
        return cls(
            planes=lab.planes,
            leaves=max(leaves.values()) // lab.planes,
            slots=slots,
            gpus_per_host=len(rails) * lab.gpus_per_nic,
            radix={role: known[role] for role in known if role is not Role.LEAF},
            ups={role: max(ups[name] for name in roles if roles[name] is role) for role in present},
            below={role: max(counts.values(), default=0) for role, counts in below.items()},
            pods=len(segments),
            segments=max(segments.values()),
            hosts=max(of_segment.values()),
            spines=tops[Role.SPINE] // lab.planes // len(segments),
            super_spines=tops[Role.SUPER_SPINE] // lab.planes,
            lifted=Fraction(up_bps, rates[Role.RAIL]),
            lifted_on=Fraction(rates.get(Role.SUPER_SPINE, up_bps), up_bps),
        )

    def as_wired(self) -> LargestFabric | None:
        """Return what fits where links up stay as they are; None where a tier has too few ports for what there is."""
        hosts = (self.radix[Role.RAIL] - self.ups[Role.RAIL]) // self.slots
        segments, pods = self.segments, self.pods
        if self.spines:
            segments = (self.radix[Role.SPINE] - self.ups.get(Role.SPINE, 0)) // self.below[Role.SPINE]
        if self.super_spines:
            pods = self.radix[Role.SUPER_SPINE] // self.below[Role.SUPER_SPINE]
        if hosts < 1 or segments < 1 or pods < 1:
            return None
        return self._made(0, pods, segments, hosts, self.spines, self.super_spines)

    def largest(self, tiers: int) -> LargestFabric | None:
        """The non-blocking Clos of so many tiers; None where its radix is not known, or not even one segment fits."""
        needed = (Role.RAIL, Role.SPINE, Role.SUPER_SPINE)[:tiers]
        if any(role not in self.radix for role in needed):
            return None
        rail, spine = self.radix[Role.RAIL], self.radix[Role.SPINE]
        hosts = _down(rail, self.lifted) // self.slots
        spines = ceil(hosts * self.slots / self.lifted)
        if tiers == 2:
            return self._made(2, 1, spine // self.leaves, hosts, spines, 0)
        below = _down(spine, self.lifted_on)
        segments, pods = below // self.leaves, self.radix[Role.SUPER_SPINE]
        return self._made(3, pods, segments, hosts, spines, spines * ceil(below / self.lifted_on))

    def _made(
        self, tiers: int, pods: int, segments: int, hosts: int, spines: int, super_spines: int
    ) -> LargestFabric | None:
        if pods * segments * hosts < 1:
            return None
        switches = self.planes * (pods * (segments * self.leaves + spines) + super_spines)
        return LargestFabric(
            tiers=tiers,
            gpus=pods * segments * hosts * self.gpus_per_host,
            pods=pods,
            segments=segments,
            hosts=hosts,
            spines=spines,
            super_spines=super_spines,
            switches=switches,
        )


def _down(radix: int, lifted: Fraction) -> int:
    """Return how many ports of a switch lead down, so that those left carry as much: half of them at one rate."""
    return int(radix * lifted / (1 + lifted))
