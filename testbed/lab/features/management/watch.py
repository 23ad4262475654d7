"""The out-of-band network of a live lab: whether its server and each node reach each other, and what nodes dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from testbed.base.linux.nftables import NetfilterSocket
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, judge
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.features.management.apply import ApartCounter, read_apart

SMALL_BYTES = 64
"""The length of a datagram that is to arrive, however long others may be."""


def management_ports(plan: LabPlan) -> Sequence[PortPlan]:
    """The management ports of nodes, that of the server first; none where nodes have none."""
    management = plan.management
    if management is None:
        return ()
    return [port for port in plan.ports if port.network == management.network and port.address is not None]


def read_kept_apart(lab: RunningLab) -> Mapping[tuple[str, str], Sequence[ApartCounter]]:
    """Read what was dropped between each management port and the others of its node, where the lab is seen with it."""
    names = {port.node: port.name for port in management_ports(lab.plan)}
    found = ask_inside(lab.name, names, NetfilterSocket, lambda _, item: read_apart(item))
    return {(node, names[node]): counters for node, counters in found.items()}


def probe_management(plan: LabPlan, size_bytes: int = SMALL_BYTES) -> tuple[int, list[str]]:
    """Send a datagram each way between the server and every node: how many, and a line for each that was lost.

    They are `size_bytes` long as IP packets, and are not fragmented. Raises `DriverError`.
    """
    ports = management_ports(plan)
    server, nodes = ports[0], ports[1:]
    probes = [
        Probe(source=a, target=b, size_bytes=size_bytes) for node in nodes for a, b in ((server, node), (node, server))
    ]
    with closing(Prober(plan.lab, ports)) as prober:
        return len(probes), [f"{line} lost" for line in prober.paths_text(prober.lost(probes))]


def check_services(lab: RunningLab) -> CheckResult:
    """Every service answers on every node that runs it."""
    from testbed.lab.features.management.services_apply import missing_services

    count = len(lab.plan.services)
    return judge(count, "services on nodes answer", missing_services(lab), _managed(lab, count))


def check_management(lab: RunningLab) -> CheckResult:
    """Datagrams pass between the server and every node."""
    count, failures = probe_management(lab.plan)
    return judge(count, "datagrams between the server and nodes", failures, _managed(lab, count))


def check_management_mtu(lab: RunningLab) -> CheckResult:
    """The largest packets pass between the server and every node."""
    size_bytes = min(port.mtu_bytes for port in management_ports(lab.plan))
    count, failures = probe_management(lab.plan, size_bytes)
    return judge(count, f"paths at {size_bytes} bytes, DF set,", failures, _managed(lab, count))


def _managed(lab: RunningLab, count: int) -> dict[str, int]:
    """All of so many things are in the network of management."""
    return {} if lab.plan.management is None else {lab.plan.management.network: count}
