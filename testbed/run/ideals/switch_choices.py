"""The paths that switches of a lab give flows, known before the run: by hashes, or by destinations that are pinned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import BalancingMode, HashEngine, HashField
from testbed.lab.core.plan.lab_plan import LabPlan
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
    hashed = hashed_choice(lab_hash(plan, flows, run=run, beside=pins))

    def choose(flow: int, node: str, links: int) -> int:
        switch = node.partition(" ")[0]
        if tables is None or switch not in pins:
            return hashed(flow, node, links)
        return pinned_path(tables, pins[switch], flows[flow].destination, links)

    return choose


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
        if HashField.ROCE_QP in buffer.hash_fields and not all(flow.queue_pair for flow in flows):
            raise ScenarioError(f"{buffer.node} hashes queue pairs, which are not known before: not predicted")
    seeds = {buffer.node: buffer.seed_in(run) for buffer in switches.values()}

    def hash_of(number: int, node: str) -> int:
        switch = node.partition(" ")[0]
        return port_hash(flows[number], seeds[switch], switches[switch].hash_fields)

    return hash_of


def balancing(plan: LabPlan) -> Sequence[BufferPlan]:
    """The switches' ways of balancing load. Raises `ScenarioError` for a lab without QoS."""
    if plan.qos is None:
        raise ScenarioError("the lab has no qos: its switches hash with the kernel's own function")
    return [buffer for buffer in plan.qos.buffers if buffer.node]
