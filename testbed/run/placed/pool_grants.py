"""Grants of a region of pooled memory: the bytes and rights that the GPUs of a workload need there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from testbed.endpoints.worker.program import PoolGrant
from testbed.protocols.scale_up.domain.windows import READ, WRITE
from testbed.workload.steps import Transfer, Workload


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
