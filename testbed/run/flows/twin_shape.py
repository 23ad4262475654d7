"""The numbers of a design, and those of a smaller one: fewer pods and segments, then fewer hosts and spines.

Spines and super-spines go with what is below them, so that the tiers keep their oversubscription as far as whole
switches allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from testbed.lab.core.model import Lab, Node, NodeKind, Role
from testbed.run.schema.model import Scalar

_NUMBERS = ("pods", "segments", "hosts", "spines", "super_spines", "groups")
_KEYS = {"groups": "super_spine_groups"}
"""The numbers that a smaller one has fewer of, and their keys in a file where these differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinShape:
    """The numbers of a design that a smaller one has fewer of."""

    pods: int
    segments: int
    """The number of them in each pod."""
    hosts: int
    """The number of them in each segment."""
    nics_a_host: int
    spines: int
    """The number of them in each pod and plane."""
    super_spines: int
    """The number of them in each plane."""
    groups: int
    """The number of groups of super-spines of a plane, of which each spine has links to one."""
    parallel: int = 1
    """The number of links from a leaf to each spine, which some designs derive from the other numbers."""

    @classmethod
    def of(cls, model: Lab) -> TwinShape:
        places = [node.place for node in model.hosts if node.place is not None]
        spines = [node.place for node in model.switches if node.role is Role.SPINE and node.place is not None]
        hosts = {node.name for node in model.nodes if node.kind is NodeKind.HOST}
        nics = sum((link.a.node in hosts) + (link.b.node in hosts) for link in model.links)
        spine = next((node for node in model.switches if node.role is Role.SPINE), None)
        tops = {node.name for node in model.switches if node.role is Role.SUPER_SPINE and _plane(node) == _plane(spine)}
        above = {link.b.node for link in model.links if spine and link.a.node == spine.name and link.b.node in tops}
        up = Counter(link.a.node for link in model.links if spine and link.b.node == spine.name)
        return cls(
            pods=max(place.pod for place in places),
            segments=max(place.segment for place in places),
            hosts=max(place.index for place in places),
            parallel=max(up.values(), default=1),
            nics_a_host=max(1, nics // len(hosts)),
            spines=max((place.index for place in spines), default=0),
            super_spines=len(tops),
            groups=len(tops) // len(above) if above else 1,
        )

    @property
    def nics(self) -> int:
        return self.pods * self.segments * self.hosts * self.nics_a_host

    @property
    def least(self) -> int:
        """Two hosts in each of two pods, or of two segments of the one."""
        return 4 * self.nics_a_host

    def within(self, nics: int, most: int) -> TwinShape:
        """Return one of so many NICs if there is one: fewer pods, then fewer segments, then fewer hosts and spines.

        It has more of them, yet at most `most`, where fewer would have another oversubscription.
        """
        pods = min(self.pods, 2)
        a_segment = self.hosts * self.nics_a_host
        least = 1 if pods > 1 else min(2, self.segments)
        segments = max(least, min(self.segments, nics // (pods * a_segment)))
        hosts, spines = self.hosts, self.spines
        while pods * segments * hosts * self.nics_a_host > nics and hosts > 2 and hosts % 2 == 0 and spines % 2 == 0:
            hosts, spines = hosts // 2, spines // 2
        hosts_at_most = max(2, most // (pods * segments * self.nics_a_host))
        if hosts > hosts_at_most:  # they cannot be halved, such as 31: spines by the same share, as nearly as may be
            even = (fewer for fewer in range(hosts_at_most, hosts_at_most // 2, -1) if spines * fewer % hosts == 0)
            fewer = next(even, hosts_at_most)
            hosts, spines = fewer, max(min(1, spines), round(spines * fewer / hosts))
        groups = gcd(self.groups, spines) if spines else 1
        above = max(1, round(self.super_spines / self.groups * segments / self.segments))  # each spine
        tops = groups * above if self.super_spines else 0
        return replace(self, pods=pods, segments=segments, hosts=hosts, spines=spines, super_spines=tops, groups=groups)

    def settings(self, before: TwinShape) -> Mapping[str, Scalar]:
        """Return the keys of a topology file that make this of it, if it differs from a larger one; {} if not.

        All of them: what a file leaves out may follow from the others, and hosts may be a list with one for each
        segment.
        """
        if self == before:
            return {}
        found = {f"fabric.{_KEYS.get(name, name)}": getattr(self, name) for name in _NUMBERS}
        return found | ({"fabric.uplink.count": self.parallel} if self.spines else {})

    def words(self, before: TwinShape) -> str:
        """Say in which numbers this differs from a larger one."""
        differing = (name for name in _NUMBERS if getattr(self, name) != getattr(before, name))
        return ", ".join(f"{_KEYS.get(name, name)} {getattr(self, name)}" for name in differing)


def _plane(node: Node | None) -> int:
    """Return the plane of a switch (from 1); 0 where there is one, or the switch has no place."""
    return 0 if node is None or node.place is None else node.place.plane
