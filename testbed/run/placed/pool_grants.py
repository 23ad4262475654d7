"""Grants of a region of pooled memory: the bytes and rights that the GPUs of a workload need there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import PoolGrant
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.protocols.scale_up.domain.binding import WINDOWS
from testbed.protocols.scale_up.domain.windows import LARGEST_WINDOW, READ, WRITE, whole_granules
from testbed.workload.steps import Transfer, Workload

OWN_WINDOWS = 1
"""The window of each device by which its domain is tried before anything begins (`InsidePackets`)."""


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


def check_account(workload: Workload, domain: DomainPlan, nics: Sequence[PortPlan], region: int) -> None:
    """Refuse grants that a region has not the memory for, or its devices not the windows.

    Raises `ScenarioError`.
    """
    nic = nics[region]
    assert domain.pool is not None
    pool = domain.pool.real
    where = f"{nic.name} of {nic.node}"
    grants = plan_grants(workload, {rank: rank for rank in range(workload.ranks)}, region)
    whole = {one.rank: whole_granules(one.size_bytes, domain.pool.granule.bytes, pool.ways) for one in grants}
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
