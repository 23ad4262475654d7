"""Pooled memory that the ranks of a workload need: the bytes and rights of each in each region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import PoolGrant
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.protocols.scale_up.domain.binding import WINDOWS
from testbed.protocols.scale_up.domain.windows import LARGEST_WINDOW, READ, WRITE, whole_granules
from testbed.workload.steps import Transfer, Workload

OWN_WINDOWS = 1
"""The window of each device by which its domain is tried before anything begins (`InsidePackets`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNeed:
    """The memory of a region that a rank needs, and the ranks that read what it has written there."""

    rank: int
    size_bytes: int
    rights: int
    """As of `testbed.protocols.scale_up.domain.windows`."""
    readers: tuple[int, ...]

    def grant(self, gpu_of: Mapping[int, int]) -> PoolGrant:
        """Return what is granted for it. `gpu_of` has the numbers of the ranks' GPUs in their domain."""
        readers = tuple(gpu_of[reader] for reader in self.readers)
        gpu = gpu_of[self.rank]
        return PoolGrant(rank=self.rank, gpu=gpu, size_bytes=self.size_bytes, rights=self.rights, readers=readers)


def pool_needs(workload: Workload, regions: Collection[int]) -> dict[int, list[PoolNeed]]:
    """Return what ranks need of each region: as many bytes as they write there, or read that nobody wrote.

    Whoever reads what another one has written is let read that, and no more.
    """
    size: dict[int, defaultdict[int, int]] = {region: defaultdict(int) for region in regions}
    rights: dict[int, defaultdict[int, int]] = {region: defaultdict(int) for region in regions}
    readers: dict[int, defaultdict[int, set[int]]] = {region: defaultdict(set) for region in regions}
    for step in workload.transfers:
        region = step.source if step.source in size else step.destination
        if region not in size:
            continue
        who = step.begun_by
        if step.pulled and step.restores is not None:
            written = workload.steps[step.restores]
            assert isinstance(written, Transfer)
            if written.source == who:
                rights[region][who] |= READ
            else:
                readers[region][written.source].add(who)
            continue
        size[region][who] += step.size_bytes
        rights[region][who] |= READ if step.pulled else WRITE
    return {
        region: [
            PoolNeed(
                rank=rank,
                size_bytes=size[region][rank],
                rights=rights[region][rank],
                readers=tuple(sorted(readers[region][rank])),
            )
            for rank in sorted(size[region])
        ]
        for region in regions
    }


def check_account(needs: Sequence[PoolNeed], domain: DomainPlan, nic: PortPlan) -> None:
    """Refuse needs of a region, `nic`, that it has not the memory for, or its devices not the windows.

    Raises `ScenarioError`.
    """
    assert domain.pool is not None
    pool = domain.pool.real
    where = f"{nic.name} of {nic.node}"
    whole = {one.rank: whole_granules(one.size_bytes, domain.pool.granule.bytes, pool.ways) for one in needs}
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
    windows = sum(2 if one.readers else 1 for one in needs)
    if windows > WINDOWS - OWN_WINDOWS:
        raise ScenarioError(
            f"the workload asks for {windows} windows of {where}: one for each rank that uses it, and one for the"
            f" readers of each; its devices have {WINDOWS - OWN_WINDOWS}",
            hint="fewer ranks, or fewer ways, so that there are more regions",
        )
