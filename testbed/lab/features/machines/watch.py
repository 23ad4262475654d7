"""Questions to a lab over several machines while it lives: do machines hear each other, and what crossed a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from testbed.base.linux.counters import read_counters
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, judge
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.features.machines.part import WIRES, CutLink, LabPart, stub_name
from testbed.lab.features.machines.wires import carriers_run, wires_status


def check_machines(lab: RunningLab) -> CheckResult:
    """Test that this machine hears every other one, and that no cut link is down."""
    if not carriers_run(lab.plan, lab.state):  # what it said last would be taken for what is
        return judge(1, "process of the wires between machines", ["it has ended; nobody tells who is lost"])
    status = wires_status(lab.plan, lab.state)
    failures = [f"{name} is silent" for name in status.silent]
    failures += [f"{port} has no carrier" for port in status.down]
    return judge(len(status.heard) + len(status.silent), "machines heard", failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCounts:
    """The counts of a port of a cut link. They are packets; `out` and `came` are by class at a port with QoS, and
    "all" at another; `paused` are pause frames that came in, and `pausing` those that its machine sent by it. `dropped`
    came over the tunnel while the link was down here: both ends do not come up at one moment."""

    port: str
    peer: str
    out: Mapping[str, int]
    came: Mapping[str, int]
    paused: int = 0
    pausing: int = 0
    dropped: int = 0


def count_cuts(lab: RunningLab) -> list[CutCounts]:
    """Return the counts of all ports of cut links that are here."""
    part = lab.part
    cuts = part.cuts(lab.plan) if isinstance(part, LabPart) else []
    stubs = ask_inside(lab.name, [WIRES], RouteSocket, lambda _, item: read_counters(item))[WIRES] if cuts else {}
    dropped = {cut.port: stubs[stub_name(cut.number)].tx_dropped for cut in cuts}
    numbers = lab.plan.port_numbers
    with_queues = {cut.port: cut.peer for cut in cuts if cut.port in numbers}
    found = _counts_of_classes(lab, with_queues, numbers) if with_queues else []
    found += _counts_of_ports(lab, [cut for cut in cuts if cut.port not in numbers])
    return [replace(item, dropped=dropped[item.port]) for item in found]


def _counts_of_ports(lab: RunningLab, cuts: Sequence[CutLink]) -> list[CutCounts]:
    """The counts of ports without QoS."""
    counters = lab.counters() if cuts else {}
    found = []
    for cut in cuts:
        node, _, name = cut.port.partition(":")
        counted = counters[node, name]
        out, came = {"all": counted.tx_packets}, {"all": counted.rx_packets}
        found.append(CutCounts(port=cut.port, peer=cut.peer, out=out, came=came))
    return found


def _counts_of_classes(lab: RunningLab, peers: Mapping[str, str], numbers: Mapping[str, int]) -> list[CutCounts]:
    """The counts of ports with QoS, in the data path."""
    from testbed.base.datapath.abi import CLASSES

    found = []
    with closing(lab.maps()) as maps:
        queues, ingress, pauses = (maps.by_port(name) for name in ("queues", "ingress", "pauses"))
        for port, peer in peers.items():
            queue, arrived, told = (each[numbers[port]] for each in (queues, ingress, pauses))
            came = sum(arrived[name] for name in ("in_packets", "lost_packets", "policed_packets"))
            found.append(
                CutCounts(
                    port=port,
                    peer=peer,
                    out={str(each): int(queue["out_packets"][each]) for each in range(CLASSES)},
                    came={str(each): int(came[each]) for each in range(CLASSES)},
                    paused=int(arrived["pause_frames"].sum()),
                    pausing=int(told["xoff_sent"].sum() + told["xon_sent"].sum()),
                )
            )
    return found
