"""Timed flows over perftest: pairs of RDMA devices, ports fixed so that ECMP hashes them the same each time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.collect.perftest import Bandwidth, PerftestTest
from testbed.collect.perftest_pair import PORT, ROCE_PORT, SOURCE_PORTS, udp_source_port
from testbed.errors import ScenarioError
from testbed.plan.operations import CreateRdma, LabPlan, PortPlan
from testbed.results import Channel, ChannelSamples
from testbed.scenario.flow_processes import TimedFlow
from testbed.scenario.placement import Placement, flow_end
from testbed.workload.draws import draw_below
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.steps import Workload

TESTS = {"write": PerftestTest.WRITE_BW, "read": PerftestTest.READ_BW, "send": PerftestTest.SEND_BW}
"""By the scenario's `verb`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestFlow(TimedFlow):
    """Data goes the same way whichever end asks for it.

    `flow_labels` are those of its queue pairs; `port` is where its server listens.
    """

    test: PerftestTest
    flow_labels: tuple[int, ...]
    port: int

    @property
    def client(self) -> PortPlan:
        """Who asks: of a read it is who gets the data."""
        return self.destination if self.test is PerftestTest.READ_BW else self.source

    @property
    def server(self) -> PortPlan:
        return self.source if self.test is PerftestTest.READ_BW else self.destination


def rdma_device_names(plan: LabPlan) -> dict[tuple[str, str], str]:
    """The lab's RDMA devices by (node, interface)."""
    return {(item.node, item.name): item.device for item in plan.operations if isinstance(item, CreateRdma)}


def devices_of(plan: LabPlan, nics: Sequence[PortPlan]) -> dict[tuple[str, str], str]:
    """The devices of these NICs. Raises `ScenarioError` for the first that has none."""
    known = rdma_device_names(plan)
    for nic in nics:
        if (nic.node, nic.name) not in known:
            raise ScenarioError(
                f"transport rdma: {nic.node}:{nic.name} has no RDMA device",
                hint="topology: {set: {fabric.nic.rdma: rxe}}, or rdma: rxe at the host",
            )
    return {(nic.node, nic.name): known[nic.node, nic.name] for nic in nics}


def plan_perftest_flows(
    workload: Workload, placement: Placement, *, seed: int, verb: str = "write", queue_pairs: int = 1
) -> tuple[PerftestFlow, ...]:
    """A flow for every transfer over the fabric, whatever its size."""
    rng = random.Random(f"perftest {seed}")
    servers: dict[str, int] = {}
    taken: set[tuple[str, str, int]] = set()
    flows: list[PerftestFlow] = []
    for step, source, destination in placement.over_fabric(workload):
        test = TESTS[verb]
        server = source.node if test is PerftestTest.READ_BW else destination.node
        servers[server] = servers.get(server, -1) + 1
        flows.append(
            PerftestFlow(
                id=len(flows) + 1,
                source_rank=step.source,
                destination_rank=step.destination,
                source=source,
                destination=destination,
                test=test,
                flow_labels=tuple(_draw_label(rng, source, destination, taken) for _ in range(queue_pairs)),
                port=PORT + servers[server],
            )
        )
    return tuple(flows)


def _draw_label(rng: random.Random, source: PortPlan, to: PortPlan, taken: set[tuple[str, str, int]]) -> int:
    """One that no other queue pair between these addresses has. 0 would leave the port to the numbers of the pair."""
    most = SOURCE_PORTS[1] - SOURCE_PORTS[0]
    for _ in range(most):
        label = 1 + draw_below(rng, most - 1)
        key = (str(source.address), str(to.address), label)
        if key not in taken:
            taken.add(key)
            return label
    raise ScenarioError(f"{source.node}:{source.name} needs more than {most} queue pairs to {to.node}:{to.name}")


def channel_of(
    flow: PerftestFlow,
    measured: Bandwidth,
    *,
    framing: Framing,
    samples: ChannelSamples | None,
    duration_s: float,
    counters: Mapping[str, int],
) -> Channel:
    """What a client reported as the record keeps it. `counters` are those of the requester's device, if only it knows.

    perftest counts messages whose end it saw within the measured time.
    """
    payload = measured.size_bytes * measured.iterations
    seconds = payload * 8 / measured.average_bps if measured.average_bps > 0 else duration_s
    one_port = len(flow.flow_labels) == 1
    return Channel(
        source_rank=flow.source_rank,
        destination_rank=flow.destination_rank,
        source=flow_end(flow.source),
        destination=flow_end(flow.destination),
        rail=flow.source.rail,
        source_port=udp_source_port(flow.flow_labels[0]) if one_port else None,
        destination_port=ROCE_PORT,
        sent_bytes=payload,
        received_bytes=payload,
        seconds=seconds,
        busy_s=seconds,
        ideal_bps=min(flow.source.rate_bps, flow.destination.rate_bps) * framing.efficiency,
        goodput_bps=measured.average_bps,
        retransmits=counters.get("completer_retry_err", 0),
        packets=None,
        samples=samples or ChannelSamples(),
        counters={"message_bytes": measured.size_bytes, "messages": measured.iterations, **counters},
    )
