"""Scenarios that run, and what a run leaves: a test says only what it is about."""

from typing import Any

from testbed.base.units import Duration
from testbed.record.record import Check, LabSummary, RunResult
from testbed.record.samples import Channel, FlowEnd, NetworkLoad, Transfers
from testbed.run.schema.model import Scenario, TopologyRef, Transport, Workload

LISTENING = ("printf", "Server listening on 5201 (test #1)\\n")
"""What stands for iperf3's server."""


def timed_scenario(**changes: Any) -> Scenario:
    """A permutation of iperf3 that lasts a second."""
    values: dict[str, Any] = {
        "name": "test",
        "topology": TopologyRef(file="somewhere/fake.yml"),
        "transport": Transport(cc="cubic"),
        "workload": Workload(kind="permutation", parameters={"scope": "inter-leaf"}, duration=Duration.parse("1s")),
    }
    return Scenario(**(values | changes))


def lab_summary(**changes: Any) -> LabSummary:
    """The lab of a record: four hosts at k = 4000."""
    values: dict[str, Any] = {
        "name": "lab",
        "design": "rail-optimized",
        "k": 4000.0,
        "k_auto": True,
        "hosts": 4,
        "nics": 16,
        "switches": {"rail": 8, "spine": 4},
        "links": 48,
        "nic_bps": 100_000_000,
        "nic_real_bps": 400_000_000_000,
        "uplink_bps": None,
        "uplink_real_bps": None,
        "mtu_bytes": 4500,
        "routing": "ebgp",
    }
    return LabSummary(**(values | changes))


def network_load(name: str, **changes: Any) -> NetworkLoad:
    """A network of which nothing was counted but that nothing was sent."""
    values: dict[str, Any] = {
        **dict.fromkeys(("sent_bytes", "entered_bytes", "delivered_bytes"), 0),
        **dict.fromkeys(("utilisation", "busiest_utilisation"), 0.0),
        **dict.fromkeys(("busiest_port", "queue_port", "queue_class"), ""),
        **dict.fromkeys(("peak_utilisation", "busiest_peak_utilisation", "queue_max_bytes"), None),
        **dict.fromkeys(("ce_packets", "pause_frames", "paused_s"), None),
    }
    return NetworkLoad(name=name, **({"ports": 4, "drops": {}} | values | changes))


def run_result(*checks: Check, **changes: Any) -> RunResult:
    """A run of a second that measured nothing."""
    values: dict[str, Any] = {"index": 1, "seed": 1, "started": "", "elapsed_s": 1.0, "metrics": {}}
    return RunResult(checks=list(checks), **(values | changes))


def end(place: str | FlowEnd) -> FlowEnd:
    """The end of a flow at "node:interface", or at a node's first rail."""
    if isinstance(place, FlowEnd):
        return place
    node, _, interface = place.partition(":")
    return FlowEnd(node=node, interface=interface or "rail1", address="10.0.0.1")


def channel(source: str | FlowEnd, destination: str | FlowEnd, **changes: Any) -> Channel:
    """A channel that moved nothing, but for what is told."""
    values: dict[str, Any] = dict.fromkeys(("sent_bytes", "received_bytes", "retransmits", "packets"), 0)
    values |= dict.fromkeys(("rail", "destination_rank", "seconds", "busy_s", "ideal_bps", "goodput_bps"), 1)
    values |= {"source_rank": 0, "source_port": None, "destination_port": None}
    return Channel(source=end(source), destination=end(destination), **(values | changes))


def transfers(*rows: tuple[float, float | None], size_bytes: int = 1_000_000) -> Transfers:
    """A transfer on each channel, from rank i to rank i + 1, with its start and end in s; alone it takes a second."""
    count = len(rows)
    return Transfers(
        number=list(range(count)),
        source=list(range(count)),
        destination=list(range(1, count + 1)),
        size_bytes=[size_bytes] * count,
        channel=list(range(count)),
        start_s=[start for start, _ in rows],
        end_s=[done for _, done in rows],
        ideal_s=[1.0] * count,
    )
