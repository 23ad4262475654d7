"""The parts of a workload that different transports carry: those of its tenants that have the same one, in the same
networks.

A part is a workload of its own, whose transport sees the lab in the networks of its ranks, as if nothing else were
there. A worker of a host works for one part: a host that takes part in two has two workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.steps import Workload
from testbed.workload.tenants import part_of_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPart:
    """The part of a workload that one transport carries.

    `steps` has the number that each step of its workload has in the whole one; ranks have the same numbers in both.
    """

    name: str
    """Sets its workers apart from those of other parts on the same host; "" where it is all of the workload."""
    transport: Transport
    networks: tuple[str, ...]
    """The networks of its ranks; none where it is all of the workload."""
    ranks: frozenset[int]
    workload: Workload
    steps: Sequence[int]

    def view(self, lab: LiveLab) -> LiveLab:
        """Return the lab as it is seen in the networks of its ranks."""
        return lab.whole.of_network(*self.networks) if self.networks else lab


def split_traffic(
    lab: LiveLab,
    workload: Workload,
    nics: Sequence[PortPlan],
    transport: Transport,
    of_tenants: Sequence[Transport] = (),
) -> tuple[TrafficPart, ...]:
    """Split a workload whose rank i is the NIC `nics[i]` of the lab; one part has all of it where its tenants have no
    transports of their own.

    `of_tenants` are the transports of the tenants. Raises `ScenarioError` where two parts cannot be apart.
    """
    if not of_tenants:
        everything = range(len(nics))
        return (
            TrafficPart(
                name="",
                transport=transport,
                networks=(),
                ranks=frozenset(everything),
                workload=workload,
                steps=range(len(workload.steps)),
            ),
        )
    if len(of_tenants) != len(workload.tenant_ranks):
        raise ScenarioError(f"{len(workload.tenant_ranks)} tenants have {len(of_tenants)} transports")
    keys: list[tuple[Transport, tuple[str, ...]]] = []
    ranks: list[set[int]] = []
    for one, members in zip(of_tenants, workload.tenant_ranks, strict=True):
        key = one, tuple(dict.fromkeys(nics[rank].network for rank in members))
        if key not in keys:
            keys.append(key)
            ranks.append(set())
        ranks[keys.index(key)] |= set(members)
    _check_targets(lab, nics, keys, ranks)
    seen: Counter[str] = Counter()
    parts = []
    for (one, networks), mine in zip(keys, ranks, strict=True):
        kind = one.kind.value
        seen[kind] += 1
        part = part_of_ranks(workload, mine)
        parts.append(
            TrafficPart(
                name=kind if seen[kind] == 1 else f"{kind}-{seen[kind]}",
                transport=one,
                networks=networks,
                ranks=frozenset(mine),
                workload=part.workload,
                steps=part.steps,
            )
        )
    return tuple(parts)


def _check_targets(
    lab: LiveLab,
    nics: Sequence[PortPlan],
    keys: Sequence[tuple[Transport, tuple[str, ...]]],
    ranks: Sequence[set[int]],
) -> None:
    """Raise `ScenarioError` for a node that is to serve two parts as a storage target: it has one medium."""
    targets = {node.name for node in lab.model.targets}
    serving: dict[str, int] = {}
    for place, ((transport, _), members) in enumerate(zip(keys, ranks, strict=True)):
        if not TRANSPORTS[transport.kind.value].to_targets:
            continue
        for node in targets & {nics[rank].node for rank in members}:
            if serving.setdefault(node, place) != place:
                raise ScenarioError(
                    f"the storage target {node} serves tenants with different transports",
                    hint="the same transport for those tenants, or another target for one of them",
                )
