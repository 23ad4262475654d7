"""Regions of pooled memory as ranks of a workload: who is one, what each GPU is granted there, and what cannot be.

A region has no NIC. So that it can be a rank, it has a port that leads nowhere but into its scale-up domain: a port of
the domain's first host, whose worker serves the devices' ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import PoolGrant
from testbed.lab.core.model import TRANSACTION, Lab
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.protocols.scale_up.domain.binding import WINDOWS
from testbed.protocols.scale_up.domain.windows import LARGEST_WINDOW, READ, WRITE
from testbed.workload.steps import Compute, Transfer, Workload

OWN_WINDOWS = 1
"""Of each device: that which its domain is tried by before anything begins (`InsidePackets`)."""


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
    for region in sorted(regions):
        domain = next(one for one in plan.scale_up_domains if one.wires[0].host == nics[region].node)
        _check_account(workload, domain, nics, region)
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


def _check_account(workload: Workload, domain: DomainPlan, nics: Sequence[PortPlan], region: int) -> None:
    """Refuse grants that a region has not the memory for, or its devices not the windows."""
    nic = nics[region]
    assert domain.pool is not None
    pool = domain.pool.real
    where = f"{nic.name} of {nic.node}"
    grants = plan_grants(workload, {rank: rank for rank in range(workload.ranks)}, region)
    row = domain.pool.granule.bytes * pool.ways
    whole = {one.rank: -(-one.size_bytes // row) * row for one in grants}
    asked, capacity = sum(whole.values()), pool.ways * pool.capacity.bytes
    if asked > capacity:
        raise ScenarioError(
            f"the workload keeps {asked:,} bytes in {where}, which has {capacity:,}",
            hint="a larger fabric.scale_up.pool.capacity, more ways, or a smaller workload.bytes_factor",
        )
    for rank, size in whole.items():
        if size > LARGEST_WINDOW:
            raise ScenarioError(
                f"rank {rank} keeps {size:,} bytes in {where}, and a window has {LARGEST_WINDOW:,} at most",
                hint="fewer ways, with a region each, or a smaller workload.bytes_factor",
            )
    windows = sum(2 if one.readers else 1 for one in grants)
    if windows > WINDOWS - OWN_WINDOWS:
        raise ScenarioError(
            f"the workload asks for {windows} windows of {where}: one for each rank that uses it, and one for the"
            f" readers of each; its devices have {WINDOWS - OWN_WINDOWS}",
            hint="fewer ranks, or fewer ways, so that there are more regions",
        )


def plan_grants(workload: Workload, gpu_of: Mapping[int, int], region: int) -> tuple[PoolGrant, ...]:
    """Return what each rank is granted of a region: as many bytes as it writes there, or reads that nobody wrote.

    Whoever reads what another one has written is let read that, and no more. `gpu_of` has the numbers of the ranks'
    GPUs in their domain.
    """
    size: defaultdict[int, int] = defaultdict(int)
    rights: defaultdict[int, int] = defaultdict(int)
    readers: defaultdict[int, set[int]] = defaultdict(set)
    for step in workload.transfers:
        if region not in (step.source, step.destination):
            continue
        who = step.begun_by
        if step.pulled and step.restores is not None:
            written = workload.steps[step.restores]
            assert isinstance(written, Transfer)
            if written.source == who:
                rights[who] |= READ
            else:
                readers[written.source].add(who)
            continue
        size[who] += step.size_bytes
        rights[who] |= READ if step.pulled else WRITE
    return tuple(
        PoolGrant(
            rank=rank,
            gpu=gpu_of[rank],
            size_bytes=size[rank],
            rights=rights[rank],
            readers=tuple(gpu_of[reader] for reader in sorted(readers[rank])),
        )
        for rank in sorted(size)
    )
