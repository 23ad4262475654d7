"""The scale-up domains of a lab as runs see them: what their links do in the lab's time, and which host is in which.

Operations in the switch reach a share of the link's rate that NCCL's cost model takes from measurements (NVLS, by
generation; NVIDIA/nccl `src/graph/tuning.cc`): Hopper 0.85, Blackwell 0.74.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ScenarioError
from testbed.lab.core.model import Lab, ScaleUp, ScaleUpBy
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.run.scale_up.pool import is_region
from testbed.run.schema.model import SCALE_UP_TIMEOUT_MS, Transport
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.steps import FoldedRing, Transfer, Workload

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import PoolPlace, ScaleUpPackets
    from testbed.protocols.scale_up.domain.endpoint import Gpu

IN_SWITCH_EFFICIENCY: Mapping[str, float] = {"h100": 0.85, "nvl72": 0.74}
"""By preset. Other presets' switches do not compute; links that are written out are taken to be used in full."""
NS_A_SECOND = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPackets:
    """The frames that carry the transfers of all domains of a lab."""

    library: str
    names: Mapping[str, str]
    """By host, the name of its domain in messages."""
    gpus: Mapping[tuple[str, int], Gpu]
    """The settings of each GPU's endpoint, by host and its number there."""
    gpus_per_nic: int = 1
    """A rank is the first GPU of its NIC."""
    rtt_ns: int
    timeout_ns: int
    counts_errors: bool
    carried: bool = True
    """The workers of the transport can wait for frames, too."""
    regions: Mapping[tuple[str, str], PoolPlace] = field(default_factory=dict)
    """The regions of pooled memory, by host and the name of the port that stands for them."""

    def gpu_of(self, nic: PortPlan) -> int:
        """Return the number of a NIC's first GPU in its host, from 1; 0 where it is no GPU's."""
        return (nic.rail - 1) * self.gpus_per_nic + 1 if nic.rail else 0

    def region(self, nic: PortPlan) -> PoolPlace | None:
        """Return the region of pooled memory that a rank is; None for one that is a GPU."""
        return self.regions.get((nic.node, nic.name)) if is_region(nic) else None

    def end_name(self, nic: PortPlan) -> str:
        """Return the name that a rank has in its host: gpu1 or, of pooled memory, pool1."""
        return nic.name if is_region(nic) else f"gpu{self.gpu_of(nic)}"

    def _granted(
        self, regions: Mapping[int, PoolPlace], workload: Workload, ranks: Sequence[PortPlan]
    ) -> dict[int, PoolPlace]:
        """Return these regions, by their ranks, with what the workload needs of each."""
        from testbed.run.scale_up.pool_grants import pool_needs

        gpu_of = {
            number: gpu.gpu
            for number, nic in enumerate(ranks)
            if not is_region(nic) and (gpu := self.gpus.get((nic.node, self.gpu_of(nic)))) is not None
        }
        return {
            rank: replace(regions[rank], grants=tuple(need.grant(gpu_of) for need in needs))
            for rank, needs in pool_needs(workload, regions).items()
        }

    def of(self, nics: Mapping[int, PortPlan], workload: Workload, ranks: Sequence[PortPlan]) -> ScaleUpPackets:
        """Return the packets of these ranks of one domain; the workload's are `ranks`. Raises `ScenarioError` for a NIC
        that is no GPU's."""
        from testbed.endpoints.worker.program import ScaleUpPackets, ScaleUpPlace

        if not self.carried:
            raise ScenarioError(
                "workers of this transport do not wait for the frames of scale-up domains",
                hint="transport: {scale_up: time}, or another kind",
            )
        regions = {rank: region for rank, nic in nics.items() if (region := self.region(nic)) is not None}
        granted = self._granted(regions, workload, ranks) if regions else {}
        places = []
        for rank, nic in sorted(nics.items()):
            if rank in granted:
                pool, name = granted[rank], f"{nic.node}:{nic.name}"
                places.append(ScaleUpPlace(rank=rank, name=name, gpu=pool.devices[0], pool=pool))
                continue
            number = self.gpu_of(nic)
            gpu = self.gpus.get((nic.node, number))
            if gpu is None:
                raise ScenarioError(
                    f"rank {rank} ({nic.node}:{nic.name}) sends inside a scale-up domain, and is none of its GPUs",
                    hint="ranks of the back end's rails; or transport: {scale_up: time}",
                )
            places.append(ScaleUpPlace(rank=rank, name=f"{nic.node}:gpu{number}", gpu=gpu))
        return ScaleUpPackets(
            library=self.library,
            name=self.names[next(iter(nics.values())).node],
            rtt_ns=self.rtt_ns,
            timeout_ns=self.timeout_ns,
            counts_errors=self.counts_errors,
            places=tuple(places),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainLinks:
    """The links that each rank has into the switches of its scale-up domain, in the lab's rates and times; the
    program of a worker says the same by `endpoints.worker.program.ScaleUpLinks`."""

    rate_bps: int = 0
    """The rate of a rank's links together, each way; 0: transfers take no time."""
    in_switch_bps: int = 0
    """The rate for operations in the switch; 0: as `rate_bps`."""
    one_way_ns: int = 0
    """The time from the last bit of a transfer at its source to its arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpDomains:
    """Rates and times of the lab, and the domain of each host by its name, which no other lab has."""

    links: DomainLinks = DomainLinks()
    domain_of: Mapping[str, str] = field(default_factory=dict)
    """A host that is not here is a domain by itself."""
    packets: DomainPackets | None = None
    """None: transfers inside a domain take the time of its links, and are no packets."""

    def of(self, host: str) -> str:
        """Return the domain of a host."""
        return self.domain_of.get(host, host)

    @property
    def latency_s(self) -> float:
        """From the last bit of a transfer at its source to its arrival."""
        return self.links.one_way_ns / NS_A_SECOND


def scale_up_domains(lab: Lab, k: float) -> ScaleUpDomains:
    """Return the domains of a lab whose time scale is `k`."""
    scale_up = lab.scale_up
    links = DomainLinks(
        rate_bps=round(scale_up.rate.bps / k),
        in_switch_bps=round(scale_up.rate.bps * _efficiency(scale_up) / k),
        one_way_ns=round(scale_up.latency.ns * k),
    )
    named = {host: domain if domain == host else f"{lab.name}/{domain}" for host, domain in lab.host_domains.items()}
    return ScaleUpDomains(links=links, domain_of=named)


def carried_domains(lab: Lab, plan: LabPlan, transport: Transport, k: float, run: Path | None = None) -> ScaleUpDomains:
    """Return the domains of a lab as a scenario's transport has their transfers carried.

    `run` is the run directory of a lab that lives.

    Raises `ScenarioError` where it wants packets that the lab has not, and `CapabilityError` without a compiler.
    """
    found = scale_up_domains(lab, k)
    if not goes_by_packets(lab, transport):
        return found
    if not plan.scale_up_domains:
        raise ScenarioError(
            f"the scale-up domains of {lab.name} have no switch for packets",
            hint="fabric: {scale_up: {preset: h100, by: packets}} in the topology, or transport: {scale_up: time}",
        )
    from testbed.lab.features.scale_up.apply import gpu_settings
    from testbed.protocols.scale_up.domain import build as scale_up_domain

    timeout_ms = timeout_ms_of(transport)
    gpus: dict[tuple[str, int], Gpu] = {}
    memory: defaultdict[str, list[Gpu]] = defaultdict(list)
    for domain in plan.scale_up_domains:
        for wire in domain.wires:
            if wire.plane == 1:
                gpu = gpu_settings(plan, wire.host, wire.local_gpu, run)
                gpus[wire.host, wire.local_gpu] = replace(gpu, timeout_s=timeout_ms / 1e3)
                if wire.memory:
                    memory[domain.name].append(gpus[wire.host, wire.local_gpu])
    packets = DomainPackets(
        library=str(scale_up_domain.build()),
        names=dict(lab.host_domains),
        gpus=gpus,
        gpus_per_nic=lab.gpus_per_nic,
        rtt_ns=round(lab.scale_up.rtt.ns * k),
        timeout_ns=timeout_ms * 1_000_000,
        counts_errors=transport.scale_up_errors == "count",
        carried=_can_carry(transport),
        regions=dict(_regions(plan, memory)),
    )
    # What operations in the switch reach of the links' rate is then what its frames do.
    return replace(found, links=replace(found.links, in_switch_bps=found.links.rate_bps), packets=packets)


def _regions(plan: LabPlan, memory: Mapping[str, Sequence[Gpu]]) -> Iterator[tuple[tuple[str, str], PoolPlace]]:
    """Yield the regions of all domains, whose devices' ends are in `memory`."""
    from testbed.endpoints.worker.program import PoolPlace

    for domain in plan.scale_up_domains:
        if domain.pool is None:
            continue
        pool, devices = domain.pool.real, memory[domain.name]
        for number in range(pool.regions):
            yield (
                (domain.wires[0].host, f"pool{number + 1}"),
                PoolPlace(
                    devices=tuple(devices[number * pool.ways : (number + 1) * pool.ways]),
                    granule_bytes=domain.pool.granule.bytes,
                    capacity_bytes=pool.ways * pool.capacity.bytes,
                ),
            )


def _can_carry(transport: Transport) -> bool:
    """Tell whether the workers of a transport can carry frames of a domain: it then has the choice."""
    named = {one.name: one for one in TRANSPORTS[transport.kind.value].parameters}
    return "scale_up" in named and ScaleUpBy.PACKETS in named["scale_up"].choices


def timeout_ms_of(transport: Transport) -> int:
    """Return how long a frame inside a domain is waited for."""
    return SCALE_UP_TIMEOUT_MS if transport.scale_up_timeout_ms is None else transport.scale_up_timeout_ms


def goes_by_packets(lab: Lab, transport: Transport) -> bool:
    """Tell whether a scenario's transport has transfers inside the domains of a lab carried as frames."""
    return ScaleUpBy(transport.scale_up or lab.scale_up.by) is ScaleUpBy.PACKETS


def inside_domains(workload: Workload, domain_of_rank: Sequence[str]) -> Workload:
    """Return the workload with every transfer between ranks of one domain going over its links, patterns' too.

    `domain_of_rank` may be coarser or finer than what the workload itself knows of: hosts, by time, where patterns take
    the fabric between two hosts of one domain.
    """
    steps = tuple(
        replace(step, scale_up=True)
        if isinstance(step, Transfer)
        and not step.scale_up
        and domain_of_rank[step.source] == domain_of_rank[step.destination]
        else _inside_ring(step, domain_of_rank)
        if isinstance(step, FoldedRing)
        else step
        for step in workload.steps
    )
    return replace(workload, steps=steps)


def _inside_ring(ring: FoldedRing, domain_of_rank: Sequence[str]) -> FoldedRing:
    more = {source for source, destination in ring.edges if domain_of_rank[source] == domain_of_rank[destination]}
    return ring if more <= ring.inside else replace(ring, inside=ring.inside | more)


def check_in_switch(lab: Lab, workload: Workload) -> None:
    """Raise `ScenarioError` where a workload has operations in switches that do not compute."""
    preset = lab.scale_up.preset
    if preset and preset not in IN_SWITCH_EFFICIENCY and any(step.in_switch for step in workload.transfers):
        raise ScenarioError(
            f"the scale-up switches of {preset} add nothing up",
            hint=f"another algorithm, or fabric.scale_up.preset: {' or '.join(IN_SWITCH_EFFICIENCY)}",
        )


def _efficiency(scale_up: ScaleUp) -> float:
    return IN_SWITCH_EFFICIENCY.get(scale_up.preset, 1.0)
