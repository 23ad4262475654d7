"""Regions of pooled memory as ranks of a workload: who is one, and what cannot be.

A region has no NIC. So that it can be a rank, it has a port that leads nowhere but into its scale-up domain: a port of
the domain's first host, whose worker serves the devices' ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.lab.core.model import TRANSACTION, Lab
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.workload.steps import Compute, Transfer, Workload


def region_ports(lab: Lab, plan: LabPlan, nics: Sequence[PortPlan]) -> Iterator[PortPlan]:
    """Yield the regions of the domains that these NICs are in, as ports: "pool1" of a domain's first host is its first.

    Raises `ScenarioError` where there are none.
    """
    domains = lab.host_domains
    wanted = {domains.get(nic.node, nic.node) for nic in nics}
    found = [domain for domain in plan.scale_up_domains if domain.name in wanted and domain.pool is not None]
    if not found:
        raise ScenarioError(
            f"the ranks of {lab.name} have no pooled memory in their scale-up domains",
            hint="fabric: {scale_up: {by: packets, pool: {devices: 4}}} in the topology",
        )
    for domain in found:
        assert domain.pool is not None
        pool, host = domain.pool.real, domain.wires[0].host
        like = next(nic for nic in nics if domains.get(nic.node, nic.node) == domain.name)
        host_nics = next((one.nics for one in plan.hosts if one.node == host), ())
        address = next((nic.address for nic in host_nics if nic.address is not None), like.address)
        for number in range(1, pool.regions + 1):
            yield replace(
                like,
                node=host,
                name=f"pool{number}",
                mac="",
                peer=f"{domain.node}:pool{number}",
                rate_bps=min(domain.pool.rate.bps, lab.scale_up.rate.scaled(plan.k).bps) * pool.ways,
                line_rate_bps=min(pool.rate.bps, lab.scale_up.rate.bps) * pool.ways,
                address=address,
                rail=0,
            )


def region_rates(nics: Sequence[PortPlan]) -> dict[int, float]:
    """Return what each rank that is a region reads and writes, both together, in lab bit/s: its memory, or its links
    where they are slower."""
    return {rank: nic.rate_bps for rank, nic in enumerate(nics) if is_region(nic)}


def is_region(nic: PortPlan) -> bool:
    """Tell whether a rank is a region: a port without an address of Ethernet."""
    return not nic.mac


def check_regions(
    workload: Workload, plan: LabPlan, nics: Sequence[PortPlan], *, by_packets: bool, timeout_ms: int
) -> None:
    """Refuse what regions cannot do: they answer, inside their domain and by packets, and ask nobody; they add nothing
    up, compute nothing, and grant no more than they have.

    `timeout_ms` is the limit of a load. Raises `ScenarioError`.
    """
    regions = {rank for rank, nic in enumerate(nics) if is_region(nic)}
    for step in workload.transfers:
        if step.withdraws and step.destination not in regions:
            raise ScenarioError(
                f"{_name(step)} withdraws what others may read, and rank {step.destination} grants nothing",
                hint="ranks: {pool: true}, whose ranks are the storage, or no lease",
            )
    if not regions:
        return
    if not by_packets:
        raise ScenarioError(
            "loads and stores of pooled memory are frames, and this scenario has transfers in domains go by time",
            hint="transport: {scale_up: packets}, and no transports of tenants",
        )
    for step in workload.transfers:
        if not {step.source, step.destination} & regions:
            continue
        if step.begun_by in regions:
            raise ScenarioError(
                f"{_name(step)} is begun by rank {step.begun_by}, which is pooled memory: it answers, and asks nobody",
                hint="a workload whose other ranks write, and read by operation: read, restore or hit_ratio",
            )
        if not step.scale_up:
            a, b = nics[step.source].node, nics[step.destination].node
            raise ScenarioError(
                f"{_name(step)} goes from {a} to {b}, and pooled memory is reached inside its scale-up domain alone",
                hint='ranks: {hosts: ["p1-s1-*"]}, those of one domain',
            )
    _check_work(workload, regions)
    from testbed.run.scale_up.pool_grants import check_account, pool_needs

    for region, needs in sorted(pool_needs(workload, regions).items()):
        domain = next(one for one in plan.scale_up_domains if one.wires[0].host == nics[region].node)
        check_account(needs, domain, nics[region])
        _check_patience(domain, nics[region], timeout_ms)


def _name(step: Transfer | Compute) -> str:
    return f"step {step.number} ({step.label})" if step.label else f"step {step.number}"


def _check_work(workload: Workload, regions: AbstractSet[int]) -> None:
    """Refuse what memory would have to do by itself."""
    hint = "workloads that write to ranks and read from them: checkpoint, kv-offload, prefix-cache, point-to-point"
    for collective in workload.collectives:
        if mine := sorted(regions & set(collective.ranks)):
            raise ScenarioError(
                f"rank {mine[0]} of a collective ({collective.kind}) is pooled memory, which has no part in one:"
                " it adds nothing up, and has no buffer for its result",
                hint=hint,
            )
    for step in workload.steps:
        if isinstance(step, Compute) and step.rank in regions and step.is_work:
            raise ScenarioError(f"{_name(step)} is work of rank {step.rank}, which is pooled memory", hint=hint)
    for request in workload.requests:
        if mine := sorted(regions & {request.client, request.server}):
            raise ScenarioError(
                f"request {request.number} is of rank {mine[0]}, which is pooled memory: it has no HTTP", hint=hint
            )


def _check_patience(domain: DomainPlan, nic: PortPlan, timeout_ms: int) -> None:
    """Refuse memory that answers nobody in time: a load by itself takes an RTT, and the device what it says."""
    assert domain.pool is not None
    link, pool = domain.links[0], domain.pool
    load_ns = link.rtt.ns + pool.latency.ns + link.real.coarse * TRANSACTION.bytes * 8e9 / pool.rate.bps
    if load_ns >= timeout_ms * 1e6:
        raise ScenarioError(
            f"a load from {nic.name} of {nic.node} takes {load_ns / 1e9:.3g} s of the lab's time, and is given up after"
            f" {timeout_ms / 1e3:.3g}",
            hint="a larger transport.scale_up_timeout_ms, or a pool with less latency or a higher rate",
        )
