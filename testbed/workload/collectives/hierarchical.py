"""AllReduce by rail: ReduceScatter in each scale-up domain, AllReduce of each block along its rail, AllGather inside.

With g GPUs per domain only 2 (n/g - 1) / (n/g) of S / g per GPU crosses the fabric, and only between GPUs of one rail.
Source: Cho et al., "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network hierarchy", MLSys
2019; as "Multi-AllReduce" in Qian et al., "Alibaba HPN: A data center network for large language model training",
SIGCOMM 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from testbed.base.errors import WorkloadError
from testbed.workload.collectives.direct import direct_all_gather, direct_reduce_scatter
from testbed.workload.collectives.group import Group
from testbed.workload.collectives.in_switch import in_switch_all_gather, in_switch_reduce_scatter
from testbed.workload.steps import Slice


def hierarchical_all_reduce(
    group: Group,
    array: Slice,
    *,
    domains: Sequence[Sequence[int]],
    along_rail: Callable[[Group, Slice], None],
    in_switch: bool = False,
) -> None:
    """`domains` are the group's ranks by scale-up domain, those of one rail at the same place in each.

    Inside a domain every GPU sends each other one its block directly, as over an NVSwitch, or the switch adds and
    copies (`in_switch`).
    """
    gpus = len(domains[0]) if domains else 0
    if any(len(domain) != gpus for domain in domains):
        raise WorkloadError(
            "a hierarchical AllReduce needs the same number of ranks in every scale-up domain", field="domains"
        )
    if sorted(rank for domain in domains for rank in domain) != sorted(group.ranks):
        raise WorkloadError("the domains' ranks are not those of the collective", field="domains")
    reduce_scatter, all_gather = (
        (in_switch_reduce_scatter, in_switch_all_gather) if in_switch else (direct_reduce_scatter, direct_all_gather)
    )
    blocks = array.split(gpus)
    with group.builder.watch(group.ranks, group.entry) as reduced:
        for domain in domains:
            reduce_scatter(group.follow(domain, group.entry, label="domain-reduce-scatter"), blocks)
    with group.builder.watch(group.ranks, reduced) as summed:
        for rail in range(gpus):
            members = [domain[rail] for domain in domains]
            along_rail(group.follow(members, reduced, label=f"rail{rail}"), blocks[rail])
    for domain in domains:
        all_gather(group.follow(domain, summed, label="domain-all-gather"), blocks)
