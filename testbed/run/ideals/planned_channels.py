"""`transport.paths: planned`: each channel has the source port that leads it along a path chosen before the run.

The paths are those of `testbed.workload.single_paths`. A switch hashes a channel's ports, so there is a source port for
every path: they are tried until the hash of each switch on the way says what was planned. Nothing is told to a switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from testbed.base.datapath.abi import BalancingMode, HashField
from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import balancing, hashes_are_known, lab_choice
from testbed.run.placed.channels import ChannelPlan, ChannelRules
from testbed.run.placed.lab import LiveLab
from testbed.workload.oracles.fabric_graph import FabricGraph, NoPath
from testbed.workload.oracles.prediction import Flow
from testbed.workload.single_paths import Path, plan_single_paths
from testbed.workload.steps import Transfer, Workload

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Channel

_BY_FLOW = "qos: {load_balancing: {mode: flow}}, or paths: hashed"


def no_plan(message: str, *, hint: str) -> ScenarioError:
    """Return the error that refuses to plan paths, at its place in the scenario."""
    return ScenarioError(f"planned: {message}", hint=hint, keys=("transport", "paths"))


def check_plannable(lab: LiveLab, ranks: Iterable[PortPlan], *, protocol: int, port: int) -> None:
    """Raise `ScenarioError` where switches do not hash the ports of flows as the lab's plan says, or where something
    else chooses among links."""
    if not hashes_are_known(ranks):
        raise no_plan(
            "ranks are in tenants, or on NICs with several ports: switches hash VXLAN's outer packets, and hosts choose"
            " the port, by hashes that are not ours",
            hint="paths: hashed, or ranks outside of tenants whose NICs have an address for each port",
        )
    pinned = [] if lab.plan.qos is None else [one for one in lab.plan.qos.buffers if one.mode is BalancingMode.STATIC]
    if pinned:
        raise no_plan(f"{pinned[0].node} pins destinations to paths (static), whatever source ports are", hint=_BY_FLOW)
    some = IPv4Address(0)
    flow = FiveTuple(source=some, destination=some, protocol=protocol, source_port=0, destination_port=port)
    try:
        lab_choice(lab.plan, [flow], run=1)
    except ScenarioError as error:
        raise no_plan(error.message, hint=_BY_FLOW) from error
    deaf = [one for one in balancing(lab.plan) if HashField.SOURCE_PORT not in one.hash_fields]
    if deaf:
        hint = "source_port among qos.load_balancing.hash.fields, or paths: hashed"
        raise no_plan(f"{deaf[0].node} hashes no source ports, by which flows are led", hint=hint)


def plan_channel_paths(
    lab: LiveLab,
    plan: ChannelPlan,
    workload: Workload,
    ranks: Sequence[PortPlan],
    rules: ChannelRules,
    *,
    protocol: int,
    seed: int,
) -> ChannelPlan:
    """Return the channels of the run of this seed with source ports that lead them along planned paths.

    `check_plannable` has found nothing. Raises `ScenarioError` where some pair has no path or too many, or where no
    source port leads along the planned one.
    """
    graph = fabric_graph(lab.model, lab.plan)
    sizes = [0] * len(plan.channels)
    for step in workload.steps:
        if isinstance(step, Transfer) and step.number in plan.of_step:
            sizes[plan.of_step[step.number]] += step.size_bytes
    flows = [
        Flow(source=_endpoint(ranks[one.source]), destination=_endpoint(ranks[one.destination]), size_bytes=size)
        for one, size in zip(plan.channels, sizes, strict=True)
    ]
    drawn = [_five_tuple(one, ranks, protocol) for one in plan.channels]
    search = _PortSearch(lab, graph, drawn, rules.source_ports, run=seed)
    try:
        paths = plan_single_paths(graph, flows)
    except (NoPath, ValueError) as error:
        raise no_plan(str(error), hint="paths: hashed") from error
    channels = [
        channel.changed(source_port=search.port(flow, path, five))
        for channel, flow, path, five in zip(plan.channels, flows, paths, drawn, strict=True)
    ]
    return replace(plan, channels=tuple(channels))


def _five_tuple(channel: Channel, ranks: Sequence[PortPlan], protocol: int) -> FiveTuple:
    """The five-tuple of a channel with the source port that was drawn for it."""
    near, far = ranks[channel.source].address, ranks[channel.destination].address
    assert near is not None and far is not None
    return FiveTuple(
        source=near.ip,
        destination=far.ip,
        protocol=protocol,
        source_port=channel.source_port,
        destination_port=channel.destination_port,
    )


class _PortSearch:
    """Finds source ports that no other channel between the same addresses has."""

    def __init__(
        self, lab: LiveLab, graph: FabricGraph, drawn: Sequence[FiveTuple], ports: tuple[int, int], *, run: int
    ) -> None:
        """`drawn` are the flows that ports are going to be asked for, which switches hash (`check_plannable`)."""
        self._graph = graph
        self._ports = ports
        self._tried = list(drawn)
        """The one that `_choose` is asked about comes first."""
        self._choose = lab_choice(lab.plan, self._tried, run=run)
        self._taken: set[FiveTuple] = set()

    def port(self, flow: Flow, path: Path, drawn: FiveTuple) -> int:
        """Return the first source port, from the drawn one on, that leads along a path. Raises `ScenarioError`."""
        least, end = self._ports
        for step in range(end - least):
            port = least + (drawn.source_port - least + step) % (end - least)
            five = replace(drawn, source_port=port)
            self._tried[:] = [five]
            if five not in self._taken and self._graph.path(flow.source, flow.destination, self._chosen) == path:
                self._taken.add(five)
                return port
        raise no_plan(
            f"no source port leads from {flow.source} to {flow.destination} along the path that was chosen",
            hint="switches that hash source ports, or paths: hashed",
        )

    def _chosen(self, node: str, links: int) -> int:
        return self._choose(0, node, links)


def _endpoint(nic: PortPlan) -> str:
    return f"{nic.node}:{nic.name}"
