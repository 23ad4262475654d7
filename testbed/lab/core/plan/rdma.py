"""RDMA devices of hosts: which ports get one, and what it is called.

A device's name is its own in the whole kernel, whatever the namespace (drivers/infiniband/core/device.c, assign_name),
so it carries the names of lab and node.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.operations import CreateRdma, HostPlan
from testbed.lab.core.plan.stable import stable_hash

LONGEST_NAME = 63
"""IB_DEVICE_NAME_MAX of rdma/ib_user_verbs.h, without the terminating byte."""


def device_name(lab: str, node: str, interface: str) -> str:
    """`<lab>-<node>-<interface>`; where that is too long, its beginning and a hash of the whole."""
    name = f"{lab}-{node}-{interface}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = f"{stable_hash(f'rdma {name}', 48):012x}"
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"


def rdma_devices(lab: Lab, hosts: Iterable[HostPlan]) -> list[CreateRdma]:
    """A device for each GPU NIC port of hosts with `rdma`: those on a rail, or all ports of a host that is on none."""
    wanted = {node.name for node in lab.nodes if node.rdma is not None}
    devices: list[CreateRdma] = []
    for host in hosts:
        if host.node in wanted:
            ports = [port for port in host.nics if port.rail] or host.nics
            devices += [
                CreateRdma(node=port.node, name=port.name, device=device_name(lab.name, port.node, port.name))
                for port in ports
            ]
    return devices
