"""The numbers of a design, and those of a smaller one: fewer pods and segments, then fewer hosts and spines.

Spines and super-spines go with what is below them, so that the tiers keep their oversubscription as far as whole
switches allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from testbed.lab.core.model import Lab, NodeKind, Role
from testbed.run.schema.model import Scalar


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
    """The number of them in each pod."""
    super_spines: int
    groups: int
    """The number of groups of super-spines, of which each spine has links to one."""

    @classmethod
    def of(cls, model: Lab) -> TwinShape:
        places = [node.place for node in model.hosts if node.place is not None]
        spines = [node.place for node in model.switches if node.role is Role.SPINE and node.place is not None]
        hosts = {node.name for node in model.nodes if node.kind is NodeKind.HOST}
        nics = sum((link.a.node in hosts) + (link.b.node in hosts) for link in model.links)
        tops = {node.name for node in model.switches if node.role is Role.SUPER_SPINE}
        spine = next((node.name for node in model.switches if node.role is Role.SPINE), "")
        above = {link.b.node for link in model.links if link.a.node == spine and link.b.node in tops}
        return cls(
            pods=max(place.pod for place in places),
            segments=max(place.segment for place in places),
            hosts=max(place.index for place in places),
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

    def within(self, nics: int) -> TwinShape:
        """Return one of at most so many NICs: fewer pods, then fewer segments, then fewer hosts and spines."""
        pods = min(self.pods, 2)
        a_segment = self.hosts * self.nics_a_host
        least = 1 if pods > 1 else min(2, self.segments)
        segments = max(least, min(self.segments, nics // (pods * a_segment)))
        hosts, spines = self.hosts, self.spines
        while pods * segments * hosts * self.nics_a_host > nics and hosts > 2 and hosts % 2 == 0 and spines % 2 == 0:
            hosts, spines = hosts // 2, spines // 2
        groups = min(self.groups, max(1, spines))
        above = max(1, round(self.super_spines / self.groups * segments / self.segments))  # each spine
        tops = groups * above if self.super_spines else 0
        return replace(self, pods=pods, segments=segments, hosts=hosts, spines=spines, super_spines=tops, groups=groups)

    def settings(self, before: TwinShape) -> Mapping[str, Scalar]:
        """Return what differs from a larger one, in the keys of a topology file."""
        names = {name: name for name in ("pods", "segments", "hosts", "spines", "super_spines")}
        names["groups"] = "super_spine_groups"
        changed = {name: key for name, key in names.items() if getattr(self, name) != getattr(before, name)}
        return {f"fabric.{key}": getattr(self, name) for name, key in changed.items()}
