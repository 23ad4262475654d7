"""The paths that switches of a lab give flows, known before the run: by hashes, or by destinations that are pinned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from ipaddress import IPv4Address

from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import BalancingMode, HashEngine, HashField
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.qos.path_tables import pinned_path
from testbed.lab.core.plan.qos.qos_plan import BufferPlan
from testbed.workload.oracles.ecmp import FlowChoice, hashed_choice


def lab_choice(plan: LabPlan, flows: Sequence[FiveTuple], *, run: int) -> FlowChoice:
    """Return which of its equal-cost links a switch gives each of these flows in the run of this seed, by their hash or
    their destination, for `oracles.ecmp.place_flows`.

    Raises `ScenarioError` where a switch leaves hashing to the kernel, heeds queue pairs, which are not known before
    the run, or does not give a flow one path.
    """
    tables = plan.tables
    pins = {item.node: item for item in balancing(plan) if item.mode is BalancingMode.STATIC}
    weights_of = _weights_of(plan, pins)
    hashed = hashed_choice(lab_hash(plan, flows, run=run, beside=pins))

    def choose(flow: int, node: str, links: int) -> int:
        switch = node.partition(" ")[0]
        if tables is None or switch not in pins:
            return hashed(flow, node, links)
        destination = flows[flow].destination
        weights = weights_of(switch, destination)
        if sum(weights) != links:
            return pinned_path(tables, pins[switch], destination, links)
        return sum(weights[: pinned_path(tables, pins[switch], destination, len(weights))])

    return choose


def _weights_of(plan: LabPlan, switches: Collection[str]) -> Callable[[str, IPv4Address], Sequence[int]]:
    """(one of these switches, destination) -> the weights of its next hops there in their order, as in `fabric_graph`,
    where one stands as often as its weight says; () where they have none. A pin is to one of them, whatever it weighs.
    """
    tables = {node: plan.expected_routes.get(node, ()) for node in switches}
    weighted = {node: routes for node, routes in tables.items() if any(route.weights for route in routes)}

    @cache
    def weights_of(node: str, destination: IPv4Address) -> Sequence[int]:
        leading = [route for route in weighted.get(node, ()) if destination in route.prefix]
        chosen = max(leading, key=lambda route: route.prefix.prefixlen, default=None)
        return () if chosen is None else sorted(chosen.weights[: chosen.next_hops])

    return weights_of


def lab_hash(
    plan: LabPlan, flows: Sequence[FiveTuple], *, run: int, beside: Collection[str] = ()
) -> Callable[[int, str], int]:
    """(number of a flow, switch) -> its hash there in the run of this seed, for `oracles.ecmp.hashed_choice`.

    Raises `ScenarioError` as `lab_choice` does; switches `beside` are not asked.
    """
    switches = {buffer.node: buffer for buffer in balancing(plan) if buffer.node not in beside}
    for buffer in switches.values():
        if buffer.hash is not HashEngine.EBPF or buffer.mode is not BalancingMode.FLOW:
            raise ScenarioError(
                f"{buffer.node} balances by {buffer.mode} with the hash of {buffer.hash}: not predicted"
            )
        if HashField.ROCE_QP in buffer.hash_fields and any(flow.is_roce and not flow.queue_pair for flow in flows):
            raise ScenarioError(f"{buffer.node} hashes queue pairs, which are not known before: not predicted")
    seeds = {buffer.node: buffer.seed_in(run) for buffer in switches.values()}

    def hash_of(number: int, node: str) -> int:
        switch = node.partition(" ")[0]
        return port_hash(flows[number], seeds[switch], switches[switch].hash_fields)

    return hash_of


def hashes_are_known(nics: Iterable[PortPlan]) -> bool:
    """Tell whether switches hash the very packets that these NICs send, and nobody else chooses among links.

    It is not known of what is in a tenant: switches hash the outer packet, whose UDP source port the leaf's VXLAN
    device draws from the inner one by a hash of its own (RFC 7348, section 5). Nor is it of a link group, nor of a NIC
    whose host speaks BGP: their hosts choose the port by a hash of their kernels.
    """
    return not any(nic.tenant or nic.member or nic.nic_ports > 1 for nic in nics)


def tells_flows_apart(plan: LabPlan) -> bool:
    """Tell whether flows between the same two addresses may have paths of their own at each switch that hashes: it
    heeds their source ports or queue pairs."""
    apart = {HashField.SOURCE_PORT, HashField.ROCE_QP}
    return plan.qos is None or all(apart & set(item.hash_fields) for item in balancing(plan))


def balancing(plan: LabPlan) -> Sequence[BufferPlan]:
    """The switches' ways of balancing load. Raises `ScenarioError` for a lab without QoS."""
    if plan.qos is None:
        raise ScenarioError("the lab has no qos: its switches hash with the kernel's own function")
    return [buffer for buffer in plan.qos.buffers if buffer.node]
