"""The time scale k: how much slower than the real fabric the lab runs, so that this machine can carry it.

A switch hop of a packet costs CPU time whatever the emulated rate. So the work of a lab is the rate of its
NICs times the hops of their packets, and a machine is known by the most of it that it does at full CPU.
Half of that is planned for: the rest is for the hosts' own programs, for routing, and for what the
calibration does not see.

A transport in user space costs more than the hops, and by the packet: `PacketDemand` is what one asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor, log10

from testbed.base.units import Rate
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import Lab, LinkKind, NodeKind

USABLE_SHARE = 0.5
SHARED_BUSY = 0.7
"""The share of all CPUs that a lab and others are to use at most: the runner comes on top, and 90 % are trusted."""
UNDISTURBED = 0.97
"""Others that leave so much of its share to a lab are nobody worth naming."""
LEAST_SHARE = 0.2
"""A lab may always use this share of the machine, however much others use."""
SLOWEST_PORT = Rate(1_000_000)
"""The automatic scale makes no port slower."""
ENDPOINT_HOPS = 8
"""The cost of a packet of a transport in user space to its two ends and its acknowledgement, in switch hops,
where that was not measured (`PacketDemand.endpoint_s`)."""
SWITCH_SHARE = 1 / 3
"""The share of the calibrated cost of a hop that a switch has: the rest is that of iperf3, which makes the packets
there, and of the wake-ups of its ends, which the measured cost of a transport has in it. So the load that 16 NICs put
on two cores was foreseen within a tenth at k = 15,000 to 60,000 (permutation, sprayed)."""
BULK_SHARE = 0.5
"""The share of its measured cost that a packet has while all senders begin. Cost is measured where packets are so far
apart that each wakes somebody; where they crowd, a wake-up serves several. Interpreted, on two cores, 1,200 packets/s
of UET took 420 to 530 us each, and 4,800 asked of the same machine 290 us."""
LEAST_BASE_RTT_S = 0.03
"""A lab whose endpoints hold packets for their paths' delay has no shorter base round trip: of less, the 0.6 ms by
which a worker with several packets to handle is late would be more than the 2 % that is trusted."""
BURST_SHARE = 2.0
"""The share of the machine that may be asked for while all senders begin at once. What is late then waits a round trip
or two in a sender; more, and congestion control sees this machine's queues instead of the fabric's."""

MEASURED_MTU_BYTES = 4500
"""The size of the packets that a machine's forwarding is measured with (`drivers.probing.calibration`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProfile:
    """A machine, by what it forwards at full CPU.

    `forwarding_bps` is bit/s over one switch hop with packets of `mtu_bytes`, all CPUs together: a measured total of
    7.8 Gbit/s over three hops (2 cores, kernel TCP, MTU 9000) is 23.4e9. The cost is per packet, so a smaller MTU
    carries proportionally less. A lab may use `usable_share` of it, `burst_share` while all senders begin at once, and
    no port is made slower than `slowest_port` to stay within.
    """

    cores: int
    forwarding_bps: float
    mtu_bytes: int = 9000
    usable_share: float = USABLE_SHARE
    burst_share: float = BURST_SHARE
    slowest_port: Rate = SLOWEST_PORT

    def capacity_bps(self, mtu_bytes: int) -> float:
        """Hop-bits per second with packets of `mtu_bytes`."""
        return self.forwarding_bps * min(1.0, mtu_bytes / self.mtu_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """The shares of all CPUs (0..1) that others use: `busy` now, and `steal` for other machines in the last minute."""

    busy: float = 0.0
    steal: float = 0.0


def beside(machine: MachineProfile, others: MachineLoad) -> MachineProfile:
    """Return what may be asked of a machine that others use, too.

    What is stolen is no longer there, and what others use is not used a second time: together they and a lab are to
    keep no more than `SHARED_BUSY` of the CPUs busy. Some is always taken, or nothing could run.
    """
    share = min(machine.usable_share * (1 - others.steal), SHARED_BUSY - others.busy - others.steal)
    share = max(LEAST_SHARE, share)
    if share >= UNDISTURBED * machine.usable_share:
        return machine
    return replace(machine, usable_share=share, burst_share=machine.burst_share * share / machine.usable_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleChoice:
    """A time scale and what it means for the machine.

    `load` is the share of the machine that all NICs sending at once at line rate would use. `fits` says whether that is
    at most what may be used; `fitting_k` is the smallest k of the series that does.
    """

    k: float
    reason: str
    load: float
    fits: bool
    fitting_k: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketDemand:
    """The packets that a workload asks of a transport in user space, in the time of the real fabric.

    `packets_per_s` is the mean over the time that an ideal fabric needs; `burst_packets_per_s` what all `senders` send
    together at the rates of their NICs. `endpoint_s` is the CPU time that a packet costs its ends and its
    acknowledgement (s), as measured of this very transport; None where it was not. `ideal_s` is the time (s) that an
    ideal fabric needs for all of it, `base_rtt_s` its base round trip (s) where endpoints make up for paths' delays.

    `kernel_packets_per_s` is what other tenants of the workload send meanwhile over transports of the kernel, at most:
    all that send at once, at the rates of their NICs or of those that receive.
    """

    packets_per_s: float
    burst_packets_per_s: float
    senders: int
    endpoint_s: float | None = None
    ideal_s: float = 0.0
    base_rtt_s: float = 0.0
    kernel_packets_per_s: float = 0.0


def choose_scale(lab: Lab, machine: MachineProfile) -> ScaleChoice:
    """The smallest k of the 1-2-5 series with which all NICs may send at once over their longest path.

    A fabric too large for that keeps its slowest port instead: routing and probes share the ports, and nobody
    sends from a thousand NICs of a small machine at once. `fits` is then False.
    """
    return judge_scale(lab, machine, min(_fitting(lab, machine), largest_k(lab, machine)))


def judge_scale(lab: Lab, machine: MachineProfile, k: float) -> ScaleChoice:
    """Tell whether `k` suits this machine, and the k that would. It only says so: a k that a file fixes is kept."""
    nics, rate, hops, mtu = _demand(lab)
    fitting = _fitting(lab, machine)
    load = rate / k * hops / machine.capacity_bps(mtu) if nics else 0.0
    fits = load <= machine.usable_share * (1 + 1e-9)
    reason = (
        f"{nics} NICs sending {Rate(round(rate / k))} in all over {hops} switch hops"
        f" use {load:.0%} of {machine.cores} cores"
        if nics
        else "no NIC sends anything"
    )
    if not fits:
        reason += f"; k = {fitting:g} would stay within {machine.usable_share:.0%}"
    return ScaleChoice(k=k, reason=reason, load=load, fits=fits, fitting_k=fitting)


def choose_packet_scale(lab: Lab, machine: MachineProfile, demand: PacketDemand) -> ScaleChoice:
    """The smallest k of one significant digit at which this machine carries the demand; bounded as `choose_scale`."""
    k = min(_fitting_packets(lab, machine, demand), largest_k(lab, machine))
    return judge_packet_scale(lab, machine, demand, k)


def judge_packet_scale(lab: Lab, machine: MachineProfile, demand: PacketDemand, k: float) -> ScaleChoice:
    """Tell whether a demand suits this machine at `k`, and the k at which it would. `load` is that of the mean."""
    load, burst = (share / k for share in _packet_shares(lab, machine, demand))
    fitting = _fitting_packets(lab, machine, demand)
    fits = load <= machine.usable_share * (1 + 1e-9) and burst <= machine.burst_share * (1 + 1e-9)
    hops = _demand(lab)[2]
    each = "" if demand.endpoint_s is None else f", {demand.endpoint_s * 1e6:.0f} us each,"
    most = demand.kernel_packets_per_s / k
    of_kernel = f" and up to {most:,.0f} packets/s of the kernel" if most else ""
    reason = (
        f"{demand.packets_per_s / k:,.0f} packets/s of a transport in user space{each}{of_kernel} over {hops} switch"
        f" {'hop' if hops == 1 else 'hops'} use {load:.0%} of {machine.cores} cores, and {burst:.0%} while"
        f" {demand.senders} {'sender begins' if demand.senders == 1 else 'senders begin'}"
    )
    if not fits:
        reason += f"; k = {fitting:g} would stay within {machine.usable_share:.0%} and {machine.burst_share:.0%}"
    return ScaleChoice(k=k, reason=reason, load=load, fits=fits, fitting_k=fitting)


def largest_k(lab: Lab, machine: MachineProfile) -> float:
    """Return the k of the 1-2-5 series that leaves no port slower than it may be."""
    scaled = (link.rate.bps for link in lab.links if link.kind is not LinkKind.MANAGEMENT)
    slowest = min(scaled, default=machine.slowest_port.bps)
    return round_down_125(slowest / machine.slowest_port.bps)


def _fitting_packets(lab: Lab, machine: MachineProfile, demand: PacketDemand) -> float:
    load, burst = _packet_shares(lab, machine, demand)
    lateness = LEAST_BASE_RTT_S / demand.base_rtt_s if demand.base_rtt_s else 0.0
    return round_up_digit(max(load / machine.usable_share, burst / machine.burst_share, lateness))


def _packet_shares(lab: Lab, machine: MachineProfile, demand: PacketDemand) -> tuple[float, float]:
    """The shares of the machine that the mean and the burst would use at k = 1."""
    _, _, hops, mtu = _demand(lab)
    if not mtu:
        return 0.0, 0.0
    hop = 8 * mtu / machine.capacity_bps(mtu)
    kernel = demand.kernel_packets_per_s * hops * hop  # the cost of a hop has that of the ends in it
    if demand.endpoint_s is None:
        paced = bulk = ENDPOINT_HOPS * hop
    else:
        paced = demand.endpoint_s / machine.cores
        bulk = BULK_SHARE * paced
        hop *= SWITCH_SHARE
    load, burst = demand.packets_per_s * (hops * hop + paced), demand.burst_packets_per_s * (hops * hop + bulk)
    return load + kernel, burst + kernel


def _fitting(lab: Lab, machine: MachineProfile) -> float:
    nics, rate, hops, mtu = _demand(lab)
    if not nics:
        return 1.0
    return round_up_125(rate * hops / (machine.usable_share * machine.capacity_bps(mtu)))


def round_up_125(value: float) -> float:
    """The next number of 1, 2, 5, 10, 20, 50, ... that is not below `value`; at least 1."""
    return _round(value, (1, 2, 5), up=True)


def round_up_digit(value: float) -> float:
    """The next number of one significant digit that is not below `value`; at least 1."""
    return _round(value, range(1, 10), up=True)


def round_down_digit(value: float) -> float:
    """The last number of one significant digit that is not above `value`; at least 1."""
    return _round(value, range(1, 10), up=False)


def round_down_125(value: float) -> float:
    """The last number of 1, 2, 5, 10, 20, 50, ... that is not above `value`; at least 1."""
    return _round(value, (1, 2, 5), up=False)


def _round(value: float, steps: Iterable[int], *, up: bool) -> float:
    """The nearest number of a series of `steps` in each decade; that it is within a billionth of one is near enough."""
    if value <= 1:
        return 1.0
    decade = 10.0 ** floor(log10(value))
    series = [step * decade for step in (*steps, 10)]
    if up:
        return next(number for number in series if number >= value * (1 - 1e-9))
    return next(number for number in reversed(series) if number <= value * (1 + 1e-9))


def _demand(lab: Lab) -> tuple[int, int, int, int]:
    """NIC ports, their line rates in all (bit/s), the switches on their longest path, the smallest NIC MTU (bytes)."""
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    nics = [
        (link, end, other)
        for link in lab.links
        if link.kind not in (LinkKind.FABRIC, LinkKind.MANAGEMENT)
        for end, other in ((link.a, link.b), (link.b, link.a))
        if end.node in hosts
    ]
    if not nics:
        return 0, 0, 0, 0
    edges = {other.node for _, _, other in nics if other.node not in hosts}
    return (
        len(nics),
        sum(link.rate.bps for link, _, _ in nics),
        _longest_path(lab, edges),
        min(link.mtu_bytes for link, _, _ in nics),
    )


def _longest_path(lab: Lab, edges: set[str]) -> int:
    """The most switches on a shortest path between two of the switches that have NICs; 1 for NICs back to back."""
    graph = LabGraph(lab).switches
    longest = 1
    seen_from: set[frozenset[str]] = set()
    for start in sorted(edges):
        # Switches with the same neighbours (rails of a segment) are equally far from everything else.
        alike = frozenset(graph.neighbours[start])
        if alike and alike in seen_from:
            continue
        seen_from.add(alike)
        for hops, wave in enumerate(graph.waves(start), 2):
            if not edges.isdisjoint(wave):
                longest = max(longest, hops)
    return longest
