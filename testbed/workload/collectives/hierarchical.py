"""AllReduce by rail: ReduceScatter inside each host, AllReduce of each block along its rail, AllGather in the host.

With g GPUs per host only 2 (n/g - 1) / (n/g) of S / g per GPU crosses the fabric, and only between GPUs of one rail.
Source: Cho et al., "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network hierarchy", MLSys
2019; as "Multi-AllReduce" in Qian et al., "Alibaba HPN: A data center network for large language model training",
SIGCOMM 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from testbed.errors import WorkloadError
from testbed.workload.collectives.direct import direct_all_gather, direct_reduce_scatter
from testbed.workload.collectives.group import Group
from testbed.workload.steps import Slice


def hierarchical_all_reduce(
    group: Group, array: Slice, *, hosts: Sequence[Sequence[int]], along_rail: Callable[[Group, Slice], None]
) -> None:
    """`hosts` are the group's ranks by host, those of one rail at the same place in each.

    Inside a host every GPU sends each other one its block directly, as over an NVSwitch.
    """
    gpus = len(hosts[0]) if hosts else 0
    if any(len(host) != gpus for host in hosts):
        raise WorkloadError("a hierarchical AllReduce needs the same number of ranks on every host", field="hosts")
    if sorted(rank for host in hosts for rank in host) != sorted(group.ranks):
        raise WorkloadError("the hosts' ranks are not those of the collective", field="hosts")
    blocks = array.split(gpus)
    with group.builder.watch(group.ranks, group.entry) as reduced:
        for host in hosts:
            direct_reduce_scatter(group.follow(host, group.entry, label="host-reduce-scatter"), blocks)
    with group.builder.watch(group.ranks, reduced) as summed:
        for rail in range(gpus):
            members = [host[rail] for host in hosts]
            along_rail(group.follow(members, reduced, label=f"rail{rail}"), blocks[rail])
    for host in hosts:
        direct_all_gather(group.follow(host, summed, label="host-all-gather"), blocks)
